// Command judge checks Curtail's output with the types and parsers of the projects whose protocols it speaks.
//
// bench/conformance builds and runs it; each subcommand prints one line for each check and exits with 1 if one failed.
package main

import (
	"fmt"
	"os"
)

// verdicts counts the checks of a subcommand and prints each at once.
type verdicts struct{ passed, failed int }

func (v *verdicts) check(name string, err error) {
	if err == nil {
		v.passed++
		fmt.Printf("pass %s\n", name)
		return
	}
	v.failed++
	fmt.Printf("FAIL %s: %v\n", name, err)
}

func (v *verdicts) exit() {
	if v.failed > 0 || v.passed == 0 {
		os.Exit(1)
	}
}

func main() {
	subcommands := map[string]func(args []string) error{
		"replica":   serveReplica,
		"tempo":     judgeTempo,
		"latencies": sendLatencies,
		"metrics":   judgeMetrics,
	}
	if len(os.Args) > 1 {
		if run, known := subcommands[os.Args[1]]; known {
			if err := run(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(2)
			}
			return
		}
	}
	fmt.Fprintln(os.Stderr, "usage: judge replica|tempo|latencies|metrics ARGUMENTS")
	os.Exit(2)
}

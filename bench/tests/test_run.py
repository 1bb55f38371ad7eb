import subprocess
import sys
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent


class Commands(unittest.TestCase):
    def test_each_command_imports_its_modules_and_explains_itself(self):
        for command in ("run", "conformance", "restart"):
            result = subprocess.run([sys.executable, BENCH / command, "--help"], capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("usage:", result.stdout)


if __name__ == "__main__":
    unittest.main()

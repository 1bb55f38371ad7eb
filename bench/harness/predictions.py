"""Compares predictions with measurements: the tail of a service with each remedy, before and after it is switched on.

For each cause of a tail, three servers with this cause run behind leaves and a root proxy without any remedy. Open-loop
load goes through the root, which writes a journal. `curtail predict` predicts every remedy from this journal. Then each
remedy gets three servers, leaves and a root of its own, with the keys that the prediction printed. All of them run at
the same time, so a disturbance of the machine meets all alike. Service times and faults have other seeds than in the
recording: the remedies meet another stretch of time of the same service.

The measurement is that of the root, from the headers of a request to the end of its response, as in the recording. Its
95 % intervals are from a bootstrap of blocks of two seconds.
"""

import contextlib
import json
import random
import subprocess
from dataclasses import dataclass, field

from harness import processes

QUANTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
NO_REMEDY = "as recorded"
# The true ratio: all attempts of the testbed's requests draw their own service times. docs/concepts/predict.md says so.
INTRINSIC_RATIO = 0
FIRST_PORT = 23_000
REPLICAS = 3
BLOCK_NS = 2_000_000_000
RESAMPLES = 400
SEED = 11


@dataclass(frozen=True)
class Plan:
    """The size of a run: each recording and each measurement lasts `seconds`."""

    seconds: int = 75
    seed: int = 1


@dataclass(frozen=True)
class Cause:
    """A service with one cause of its tail."""

    server: str
    faults: tuple = ()
    rate: int = 60
    concurrency: int = 8


USUAL = "{shape: lognormal, median: 20ms, sigma: 0.4}"
STALL = "{recipe: stall, every: {shape: exponential, mean: 4s}, lasts: {shape: constant, value: 250ms}}"
JOB = "{recipe: background_job, every: 2s, lasts: {shape: constant, value: 300ms}, slowdown: 4}"
SLOW = "{servers_first: 1, recipe: slow_replica, slowdown: 3}"
COLLECTION = "{recipe: garbage_collection, executions: 60, lasts: {shape: constant, value: 200ms}}"
SHORT_STALL = "{recipe: stall, every: {shape: exponential, mean: 1s}, lasts: {shape: constant, value: 80ms}}"
HEAVY = (
    "{shape: mixture, parts: [{weight: 97, shape: lognormal, median: 20ms, sigma: 0.3},"
    " {weight: 3, shape: lognormal, median: 150ms, sigma: 0.2}]}"
)
SYNCHRONIZED = "{recipe: background_job, every: 3s, lasts: {shape: constant, value: 300ms}, slowdown: 3, synchronized: true}"
ANTAGONIST = "{recipe: antagonist, cores_max: 4, cores_left_min: 1, every: {shape: exponential, mean: 1s}}"
BURSTY = USUAL + ", cores: {allocated: 1, machine: 4}"
# The method was developed with the first causes, and then met the others for the first time.
CAUSES = {
    "stalls": Cause(USUAL, (STALL,)),
    "one slow replica": Cause(USUAL, (SLOW,)),
    "long tail of service": Cause("{shape: lognormal, median: 12ms, sigma: 1}"),
    "saturated": Cause("{shape: exponential, mean: 42ms}", concurrency=1),
    "pauses of a collector": Cause(USUAL, (COLLECTION,)),
    "background job": Cause(USUAL, (JOB,)),
    "queueing": Cause("{shape: exponential, mean: 25ms}", concurrency=1),
    "stalls and a slow replica": Cause(USUAL, (STALL, SLOW)),
    "short stalls": Cause(USUAL, (SHORT_STALL,)),
    "heavy executions": Cause(HEAVY),
    "synchronized job": Cause(USUAL, (SYNCHRONIZED,)),
    "bursts": Cause(BURSTY, (ANTAGONIST,)),
}
SETTINGS = ("hedge p90", "hedge p95", "hedge p99", "tie", "least request", "peak EWMA", "Prequal", "retry overdue")


@dataclass
class Measured:
    """The requests of one root: latencies by block, and attempts per request."""

    blocks: list = field(default_factory=list)
    failed: int = 0
    extra: float = 0.0

    def latencies(self):
        return sorted(latency for block in self.blocks for latency in block)

    def figures(self, rng):
        """The quantiles in milliseconds, each with its interval of 95 %."""
        resamples = [sorted(sum(rng.choices(self.blocks, k=len(self.blocks)), [])) for _ in range(RESAMPLES)]
        figures = {}
        for name, share in QUANTILES.items():
            values = sorted(quantile(latencies, share) for latencies in resamples)
            interval = (values[round(0.025 * RESAMPLES)], values[round(0.975 * RESAMPLES) - 1])
            figures[name] = (quantile(self.latencies(), share), *interval)
        return figures


def quantile(values, share):
    """The nearest rank, as everywhere in Curtail."""
    rank = max(1, -int(-share * len(values) // 1))
    return values[rank - 1] / 1e6


def read_journal(path, warm_up_ns=0):
    """Reads the requests of a journal that arrived after its warm-up."""
    start, arrived, latencies, attempts = None, {}, [], 0
    for line in path.open():
        entry = json.loads(line)
        if entry.get("entry") != "call":
            continue
        key, event, now = (entry["machine"], entry["call"]), entry["event"], entry["now"]
        start = now if start is None else start
        if event == "arrived" and now >= start + warm_up_ns:
            arrived[key] = now
        if key not in arrived:
            continue
        attempts += sum("send" in effect["effect"] for effect in entry["effects"] if isinstance(effect["effect"], dict))
        if isinstance(event, dict) and event.get("ended", {}).get("whole"):
            latencies.append((arrived[key], now - arrived[key]))
    blocks = {}
    for at, latency in latencies:
        blocks.setdefault((at - start) // BLOCK_NS, []).append(latency)
    return Measured(list(blocks.values()), len(arrived) - len(latencies), attempts / len(arrived) - 1)


class Service:
    """Servers with a cause of a tail, leaves in front of them, and a root with a remedy."""

    def __init__(self, program, folder, first_port, cause, keys, seed):
        self.folder, self.root, self.rate, self.processes = folder, first_port, cause.rate, []
        folder.mkdir(parents=True)
        ports = range(first_port + 1, first_port + 1 + REPLICAS)
        leaf_ports = [port + REPLICAS for port in ports]
        faults = "".join(f"  - {fault}\n" for fault in cause.faults)
        testbed = (
            f"name: service\nreplicas: {REPLICAS}\nlisten: 127.0.0.1:{ports[0]}\n"
            f"server: {{concurrency: {cause.concurrency}, service: {cause.server}}}\nfaults:\n{faults}"
        )
        if not faults:
            testbed = testbed.removesuffix("faults:\n")
        leaves = "leaves:\n" + "".join(
            f'  - {{name: leaf-{port}, address: "127.0.0.1:{leaf}", server: "http://127.0.0.1:{port}",'
            f" concurrency: {cause.concurrency}}}\n"
            for port, leaf in zip(ports, leaf_ports)
        )
        replicas = ", ".join(f'"http://127.0.0.1:{leaf}"' for leaf in leaf_ports)
        keys = "".join(f"    {line}\n" for line in keys.splitlines())
        root = (
            f'listeners: [{{name: in, address: "127.0.0.1:{self.root}"}}]\nadmin: {{address: "127.0.0.1:{self.root + 8}"}}\n'
            f"workers: 1\nroutes: [{{upstream: service}}]\nupstreams:\n  service:\n    replicas: [{replicas}]\n{keys}"
        )
        leaves += f'workers: 1\nadmin: {{address: "127.0.0.1:{self.root + 9}"}}\n'
        for name, text in (("testbed", testbed), ("leaves", leaves), ("root", root)):
            (folder / f"{name}.yaml").write_text(text)
        self.journal = folder / "requests.journal"
        proxy = [program, "proxy", "--seed", seed, "--config"]
        try:
            self._start([program, "testbed", folder / "testbed.yaml", "--seed", seed], "testbed", ports)
            self._start([*proxy, folder / "leaves.yaml"], "leaves", leaf_ports)
            self._start([*proxy, folder / "root.yaml", "--journal", self.journal], "root", [self.root])
        except BaseException:
            self.stop()
            raise

    def _start(self, command, name, ports):
        log = self.folder / f"{name}.log"
        self.processes.append(processes.ServerProcess(name, processes.at_real_time(command), "0-1", ports, log))

    def stop(self):
        for process in reversed(self.processes):
            process.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def load_command(program, service, seconds, seed):
    return [
        program, "bench", "load", f"http://127.0.0.1:{service.root}/keys?k=a", "--rate", service.rate,
        "--for", f"{seconds}s", "--connections", 512, "--threads", 1, "--seed", seed, "--format", "json",
    ]  # fmt: skip


def run_load(program, services, seconds, seed):
    """Sends load to all services at the same time."""
    commands = [load_command(program, service, seconds, seed + nth) for nth, service in enumerate(services)]
    loads = [
        processes.spawn(processes.at_real_time(command), "0-1", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    try:
        for load in loads:
            _, errors = load.communicate(timeout=2 * seconds + 60)
            # 1: the load generator lagged, which a proxy's own clock does not see.
            if load.returncode not in (0, 1):
                raise processes.StartError(f"the load failed with exit code {load.returncode}: {errors[-1000:]}")
    finally:
        for load in loads:
            if load.poll() is None:
                load.kill()
                load.wait()


PLAIN = "balance: random\nhedge: false\nretry: false\n"


def measure(plan, program, print_line, scratch, causes=tuple(CAUSES)):
    """Predicts and measures every remedy for each cause; returns plain values by cause.

    While the remedies of one cause are measured, the next cause is recorded.
    """
    results, predicted = {}, None
    for name in (*causes, None):
        seed = plan.seed + 1_000 * len(results)
        folder = folder_of(scratch, name or "end")
        with contextlib.ExitStack() as stack:
            services = []
            start = lambda *arguments: services.append(stack.enter_context(Service(program, *arguments)))
            if name:
                start(folder / "recorded", FIRST_PORT, CAUSES[name], PLAIN, seed + 500)
            if predicted:
                predicted.start_settings(start, seed)
            run_load(program, services, plan.seconds, seed)
        if predicted:
            results[predicted.name] = predicted.result()
            print_line(f"predictions: {predicted.name}: measured")
        if name:
            predicted = Predicted(name, folder, predict(program, services[0].journal, seed))
    return results


def predict_again(plan, program, print_line, scratch, causes=tuple(CAUSES)):
    """As `measure`, from the recordings and measurements that it left in `scratch`."""
    results = {}
    for nth, name in enumerate(causes):
        folder = folder_of(scratch, name)
        journal = folder / "recorded" / "requests.journal"
        results[name] = Predicted(name, folder, predict(program, journal, plan.seed + 1_000 * max(nth - 1, 0))).result()
        print_line(f"predictions: {name}: predicted again")
    return results


def folder_of(scratch, cause):
    return scratch / cause.replace(" ", "-")


class Predicted:
    """A cause with its prediction, whose remedies are to be measured."""

    def __init__(self, name, folder, prediction):
        self.name, self.folder, self.prediction = name, folder, prediction
        self.settings = {NO_REMEDY: PLAIN}
        self.settings |= {r["name"]: r["config"] for r in prediction["remedies"] if r["name"] in SETTINGS}

    def start_settings(self, start, seed):
        for nth, keys in enumerate(self.settings.values(), 1):
            start(self.folder / f"setting-{nth}", FIRST_PORT + 10 * nth, CAUSES[self.name], keys, seed + nth)

    def result(self):
        """The predicted and measured figures of all settings."""
        rng = random.Random(SEED)
        rows = {}
        for nth, name in enumerate(self.settings, 1):
            measured = read_journal(self.folder / f"setting-{nth}" / "requests.journal")
            predicted = self.prediction["modelled"] if name == NO_REMEDY else find(self.prediction, name)
            figures = {"measured": measured.figures(rng), "failed": measured.failed, "extra": measured.extra}
            rows[name] = {"predicted": predicted} | figures
        recorded = read_journal(self.folder / "recorded" / "requests.journal").figures(rng)
        kept = ("measured", "modelled", "reproduced", "difference", "model", "notes", "recommended", "why")
        return {"recorded": recorded, "settings": rows} | {key: self.prediction[key] for key in kept}


def find(prediction, name):
    return next(remedy for remedy in prediction["remedies"] if remedy["name"] == name)


def predict(program, journal, seed, intrinsic_ratio=INTRINSIC_RATIO, flags=()):
    command = [program, "predict", "--from", journal, "--seed", seed, "--format", "json", *flags]
    if intrinsic_ratio is not None:
        command += ["--intrinsic-ratio", intrinsic_ratio]
    run = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    # 1: the model does not reproduce the recording, which the result states.
    if run.returncode not in (0, 1):
        raise processes.StartError(f"curtail predict failed with exit code {run.returncode}: {run.stderr[-1000:]}")
    return json.loads(run.stdout)

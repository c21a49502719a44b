#!/usr/bin/env python3
"""The autoscaler's queries, evaluated by Prometheus over series that are written here.

    tests/deploy/scaling_test.py --helm=HELM --promtool=PROMTOOL     deploy/check.sh runs it

Both autoscalers are held to the same cases: KEDA's queries as the ScaledObject has them,
and prometheus-adapter's as the release's notes print them.
"""

import pathlib
import subprocess
import tempfile
import unittest

import yaml

import chart
from chart import Chart

KEDA = {"autoscaling": {"enabled": True}}
HPA = {"autoscaling": {"enabled": True, "kind": "hpa"}}
# What a ServiceMonitor of the release gives to each series.
OURS = 'namespace="attention",service="demo-attnd-admin"'


def keda_queries():
    triggers = Chart(KEDA).one("ScaledObject")["spec"]["triggers"]
    return {trigger["name"]: trigger["metadata"]["query"] for trigger in triggers}


def adapter_rules():
    """By the metric's name, from the notes of a release that is not made."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(HPA, file)
        file.flush()
        notes = subprocess.run(
            [chart.OPTIONS.helm, "install", "demo", chart.OPTIONS.chart, "-n", "attention",
             "--dry-run=client", "-f", file.name], check=True, capture_output=True, text=True).stdout
    rules = yaml.safe_load(notes.split("NOTES:")[1].split("\n---\n")[1])
    return {rule["name"]["as"]: rule for rule in rules["external"]}


def adapter_queries():
    names = {"attnd_queue_time_seconds": "queue-time", "attnd_busy_ratio": "busy"}
    # What the adapter puts there: the namespace, and the selector of the HPA's metric.
    return {names[name]: rule["metricsQuery"].replace("<<.LabelMatchers>>", OURS)
            for name, rule in adapter_rules().items()}


def steadily(rate):
    """A counter that grows so much a second, over ten minutes of scrapes."""
    return f"0+{rate * 15:g}x40"


def server(pod, lanes=3, busy=0.0, below_100ms=0.0, below_200ms=0.0, labels=OURS):
    """Series of one server: lanes, their busy seconds a second, and requests a second of
    which so many waited less than 100 ms and, these among them, less than 200 ms."""
    labels = f'{labels},pod="{pod}"'
    queue = f'attnd_phase_duration_seconds_bucket{{{labels},method="Forward",phase="queue"'
    compute = f'attnd_phase_duration_seconds_bucket{{{labels},method="Forward",phase="compute"'
    series = [(f"attnd_build_info{{{labels}}}", "1x40"),
              (f'attnd_lanes{{{labels},device="cuda:0"}}', f"{lanes}x40"),
              (f'attnd_lane_busy_seconds_total{{{labels},device="cuda:0"}}', steadily(busy))]
    for le, rate in (("0.1", below_100ms), ("0.2", below_200ms), ("+Inf", below_200ms)):
        series += [(f'{queue},le="{le}"}}', steadily(rate)),
                   (f'{compute},le="{le}"}}', steadily(100 if le == "+Inf" else 0))]
    return series


def lanes(pod, device, count=3, busy=0.0):
    """Series of a further device of a server."""
    labels = f'{OURS},pod="{pod}",device="{device}"'
    return [(f"attnd_lanes{{{labels}}}", f"{count}x40"),
            (f"attnd_lane_busy_seconds_total{{{labels}}}", steadily(busy))]


def two_gpus(pod, busy=(0.0, 0.0), team=0.0):
    """A server with two GPUs and so with a team, each with three lanes."""
    return (server(pod, busy=busy[0]) + lanes(pod, "cuda:1", busy=busy[1])
            + lanes(pod, "team:0", busy=team))


# What runs, and the value of each query; None: it has none.
CASES = {
    "nothing is scraped": ([], {"queue-time": None, "busy": None}),
    "nobody calls": (server("a") + server("b"), {"queue-time": 0, "busy": 0}),
    "nothing waits, two lanes of four are busy":
        (server("a", busy=1) + server("b", busy=1, below_100ms=10, below_200ms=10),
         {"queue-time": 0.09, "busy": 0.5}),
    "requests wait, unlike at each server":
        (server("a", busy=2, below_100ms=5, below_200ms=5)
         + server("b", busy=2, below_100ms=0, below_200ms=5),
         {"queue-time": 0.18, "busy": 1}),
    "one lane is all there is": (server("a", lanes=1, busy=0.7), {"queue-time": 0, "busy": 0.7}),
    "two GPUs are full of requests that each has for itself":
        (two_gpus("a", busy=(2, 2)) + two_gpus("b", busy=(2, 2)), {"queue-time": 0, "busy": 1}),
    "a team is full": (two_gpus("a", team=2), {"queue-time": 0, "busy": 1}),
    "a team and its GPUs share them":
        (two_gpus("a", busy=(1, 1), team=1) + two_gpus("b"), {"queue-time": 0, "busy": 0.5}),
    "another release is busy":
        (server("a") + server("z", busy=3, below_200ms=50,
                              labels='namespace="attention",service="other-attnd-admin"')
         + server("y", busy=3, below_200ms=50,
                  labels='namespace="elsewhere",service="demo-attnd-admin"'),
         {"queue-time": 0, "busy": 0}),
}


def promtool(queries):
    """What promtool says if a query has another value in any case, else ''."""
    tests = [{
        "name": name, "interval": "15s",
        "input_series": [{"series": s, "values": v} for s, v in series],
        "promql_expr_test": [
            # Whole millionths: a sum of floats is rarely what one writes down.
            {"expr": f"round(({queries[which]}) * 1e6)", "eval_time": "9m",
             "exp_samples": [] if value is None else
                            [{"labels": "{}", "value": round(value * 1e6)}]}
            for which, value in values.items()],
    } for name, (series, values) in CASES.items()]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "test.yml"
        path.write_text(yaml.safe_dump({"evaluation_interval": "15s", "tests": tests}))
        done = subprocess.run([chart.OPTIONS.promtool, "test", "rules", path],
                              capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode else ""


class ScalingTest(unittest.TestCase):

    maxDiff = None

    def test_kedas_queries(self):
        self.assertEqual(promtool(keda_queries()), "")

    def test_prometheus_adapters_queries(self):
        self.assertEqual(promtool(adapter_queries()), "")

    def test_a_wrong_query_would_be_noticed(self):
        for right, wrong in ((" - 1", ""), (',device!~"team:.*"', "")):
            queries = keda_queries()
            self.assertIn(right, queries["busy"])
            queries["busy"] = queries["busy"].replace(right, wrong)
            self.assertIn("expr:", promtool(queries), right)

    def test_the_hpa_asks_for_the_metrics_that_the_notes_define(self):
        metrics = Chart(HPA).one("HorizontalPodAutoscaler")["spec"]["metrics"]
        self.assertEqual({m["external"]["metric"]["name"] for m in metrics},
                         adapter_rules().keys())
        for metric in metrics:
            self.assertEqual(metric["external"]["metric"]["selector"]["matchLabels"],
                             {"service": "demo-attnd-admin"})

    def test_both_have_the_same_targets(self):
        triggers = Chart(KEDA).one("ScaledObject")["spec"]["triggers"]
        metrics = Chart(HPA).one("HorizontalPodAutoscaler")["spec"]["metrics"]
        for trigger, metric in zip(triggers, metrics):
            milli = metric["external"]["target"]["value"]
            self.assertEqual(float(trigger["metadata"]["threshold"]),
                             int(milli.removesuffix("m")) / 1000)
            self.assertEqual(trigger["metricType"], metric["external"]["target"]["type"])


def add_options(parser):
    parser.add_argument("--promtool", required=True)


if __name__ == "__main__":
    chart.main(add_options)

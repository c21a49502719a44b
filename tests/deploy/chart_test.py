#!/usr/bin/env python3
"""What the chart promises beyond what a schema can say, and which values it refuses.

    tests/deploy/chart_test.py --helm=HELM [--chart=FOLDER]     deploy/check.sh runs it
"""

import concurrent.futures
import unittest

import chart
from chart import Chart

REGIONS = {"enabled": True}
CLIENT = [{"name": "client", "image": "client:1"}]


def scraped(interval, window):
    """Values of an autoscaler that looks back over `window` seconds of such scrapes."""
    return {"autoscaling": {"enabled": True, "queueTime": {"windowSeconds": window}},
            "metrics": {"serviceMonitor": {"enabled": True, "interval": interval}}}


# Values, and what the error names.
REFUSED = [
    ({"drain": {"gracePeriodSeconds": 49}}, "drain.gracePeriodSeconds"),
    ({"drain": {"timeSeconds": 300, "gracePeriodSeconds": 300}}, "are 320 together"),
    ({"config": {"drain_time": "10m"}}, "set drain.timeSeconds instead"),
    ({"config": {"insecure": False}}, "config.insecure"),
    ({"extraArgs": ["--drain_time=10m"]}, "set drain.timeSeconds instead"),
    ({"extraArgs": ["--insecure"]}, "extraArgs: --insecure"),
    ({"extraArgs": ["--lanes", "4"]}, "/extraArgs/1"),
    ({"config": {"region_group": 'a" \nhost = "::'}}, "/config/region_group"),
    ({"tls": {"enabled": True}}, "needs tls.secretName"),
    ({"tls": {"secretName": "attnd-tls"}}, "without tls.enabled"),
    ({"tls": {"clientCA": {"secretName": "clients"}}}, "tls.clientCA.secretName: needs tls.enabled"),
    ({"tls": {"minVersion": "1.1"}}, "/tls/minVersion"),
    ({"identity": {"required": True}}, "nobody could call"),
    ({"identity": {"required": True, "tokenSecretName": "tokens"}}, "the test needs a token"),
    ({"tls": {"enabled": True, "secretName": "t", "clientCA": {"secretName": "c"}}},
     "the test needs a certificate"),
    ({"regions": REGIONS}, "nobody could reach the socket"),
    ({"regions": {"hostPath": "/run/attnd"}}, "needs regions.enabled"),
    ({"regions": {**REGIONS, "hostPath": "/run/attnd"}}, "a node has room for one server"),
    ({"strategy": {"maxSurge": 0}}, "nothing could roll out"),
    ({"autoscaling": {"enabled": True, "minReplicas": 5}}, "more than autoscaling.maxReplicas"),
    ({"autoscaling": {"enabled": True, "minReplicas": 0}}, "needs autoscaling.kind keda"),
    ({"autoscaling": {"enabled": True, "minReplicas": 0, "kind": "hpa",
                      "extraTriggers": [{"type": "cron"}]}}, "needs autoscaling.kind keda"),
    (scraped("15s", 59), "windowSeconds: is less than four scrapes"),
    (scraped("1m", 120), "of metrics.serviceMonitor.interval 1m"),
    (scraped("1m30s", 359), "windowSeconds: is less than four scrapes"),
    ({"metrics": {"serviceMonitor": {"enabled": True, "interval": "5s"}}},
     "scrapeTimeout: is more than metrics.serviceMonitor.interval"),
    ({"metrics": {"serviceMonitor": {"interval": "0s"}}}, "/metrics/serviceMonitor/interval"),
    ({"metrics": {"serviceMonitor": {"interval": "30s1m"}}}, "/metrics/serviceMonitor/interval"),
    ({"fullnameOverride": "9lives"}, "/fullnameOverride"),
    ({"fullnameOverride": "attnd.team"}, "/fullnameOverride"),
    ({"fullnameOverride": "Attnd"}, "/fullnameOverride"),
    ({"fullnameOverride": "a" * 53}, "/fullnameOverride"),
    ({"nameOverride": "a" * 64}, "/nameOverride"),
    ({"nameOverride": "at.tn"}, "a Service cannot be called demo-at.tn"),
    ({"serviceAccount": {"name": "a..b"}}, "/serviceAccount/name"),
    ({"autoscaling": {"queueTime": {"targetSeconds": 0.0004}}}, "/autoscaling/queueTime/targetSeconds"),
    ({"autoscaling": {"busy": {"target": 0.0004}}}, "/autoscaling/busy/target"),
    ({"server": {"slowSeconds": 0.0000001}}, "/server/slowSeconds"),
    ({"server": {"slowSeconds": -1}}, "/server/slowSeconds"),
    ({"podLabels": {"app.kubernetes.io/name": "mine"}}, "app.kubernetes.io/name"),
    ({"image": {"digest": "latest"}}, "/image/digest"),
    ({"gpu": {"count": 0}}, "/gpu/count"),
    ({"gpus": 1}, "gpus"),
    ({"autoscaling": {"queueTime": {"target": 1}}}, "target"),
    ({"security": {"userId": 0}}, "/security/userId"),
]


def named_ports(pod):
    return {port["name"]: port["containerPort"]
            for container in pod["containers"] for port in container.get("ports", [])}


def selects(selector, labels):
    return bool(selector) and selector.items() <= labels.items()


class RefusedTest(unittest.TestCase):

    def test_values_that_would_not_work_are_refused_by_name(self):
        with concurrent.futures.ThreadPoolExecutor() as pool:
            errors = pool.map(lambda case: Chart(case[0]).error, REFUSED)
        for (values, message), error in zip(REFUSED, errors):
            with self.subTest(values):
                # Helm 3 writes tls.minVersion where Helm 4 writes /tls/minVersion.
                self.assertIn(message.lower().lstrip("/").replace("/", "."),
                              error.lower().replace("/", "."))


class ScrapeTest(unittest.TestCase):

    def test_a_window_of_four_scrapes_will_do(self):
        for interval, window in (("15s", 60), ("1m30s", 360), ("12s500ms", 50)):
            rendered = Chart(scraped(interval, window))
            self.assertTrue(rendered.all("ScaledObject"), rendered.error)
        # Without an autoscaler nobody looks back.
        rendered = Chart({"metrics": {"serviceMonitor": {"enabled": True, "interval": "1h"}}})
        self.assertTrue(rendered.all("ServiceMonitor"), rendered.error)


class DrainTest(unittest.TestCase):

    def test_the_grace_period_covers_the_whole_drain(self):
        pod = Chart({"drain": {"preStopSeconds": 7, "timeSeconds": 100,
                               "marginSeconds": 5}}).pod()
        self.assertEqual(pod["terminationGracePeriodSeconds"], 112)
        sleep = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]
        self.assertEqual(sleep, {"seconds": 7})

    def test_a_longer_grace_period_is_kept(self):
        pod = Chart({"drain": {"gracePeriodSeconds": 50}}).pod()
        self.assertEqual(pod["terminationGracePeriodSeconds"], 50)
        pod = Chart({"drain": {"gracePeriodSeconds": 900}}).pod()
        self.assertEqual(pod["terminationGracePeriodSeconds"], 900)

    def test_no_hook_without_a_pause(self):
        self.assertNotIn("lifecycle", Chart({"drain": {"preStopSeconds": 0}}).server())

    def test_attnd_is_told_the_same_time(self):
        self.assertEqual(Chart({"drain": {"timeSeconds": 77}}).conf()["drain_time"], "77s")


class SecurityTest(unittest.TestCase):

    def test_every_container_is_confined(self):
        for name, values in chart.value_files().items():
            rendered = Chart(values)
            pods = [rendered.pod()] + [pod["spec"] for pod in rendered.all("Pod")]
            for pod in pods:
                with self.subTest(name):
                    context = pod["securityContext"]
                    self.assertTrue(context["runAsNonRoot"])
                    self.assertEqual(context["seccompProfile"], {"type": "RuntimeDefault"})
                    self.assertFalse(pod["automountServiceAccountToken"])
                    self.assertFalse({"hostNetwork", "hostPID", "hostIPC"} & pod.keys())
                for container in pod["containers"] + pod.get("initContainers", []):
                    if container["name"] == "client":
                        continue  # a sidecar is its owner's
                    with self.subTest(name, container=container["name"]):
                        self.assertEqual(container["securityContext"], {
                            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                            "capabilities": {"drop": ["ALL"]}})

    def test_the_user_is_attnds_or_the_platforms(self):
        context = Chart().pod()["securityContext"]
        self.assertEqual([context[key] for key in ("runAsUser", "runAsGroup", "fsGroup")],
                         [65532] * 3)
        context = Chart({"security": {"userId": None, "groupId": None}}).pod()["securityContext"]
        self.assertFalse({"runAsUser", "runAsGroup", "fsGroup"} & context.keys())

    def test_tls_and_tokens_come_from_secrets_that_can_be_renewed(self):
        rendered = Chart(chart.value_files()["everything-values.yaml"])
        conf = rendered.conf()
        mounts = {m["mountPath"]: m for m in rendered.server()["volumeMounts"]}
        for flag in ("tls_cert", "tls_key", "tls_client_ca", "token_file"):
            folder, _ = conf[flag].rsplit("/", 1)
            self.assertTrue(mounts[folder]["readOnly"], flag)
            # Kubernetes never renews a file that is mounted by itself.
            self.assertNotIn("subPath", mounts[folder])

    def test_tls_leaves_the_public_port_no_other_way(self):
        conf = Chart({"tls": {"enabled": True, "secretName": "attnd-tls"}}).conf()
        self.assertTrue(conf["tls_cert"] and conf["tls_key"])
        self.assertNotIn("metrics_port", conf)


class NetworkPolicyTest(unittest.TestCase):

    def rules(self, **values):
        policy = Chart({"networkPolicy": values}).one("NetworkPolicy")["spec"]
        self.assertEqual(policy["policyTypes"], ["Ingress", "Egress"])
        return {rule["ports"][0]["port"]: rule["from"] for rule in policy["ingress"]}, policy

    def test_the_admin_port_is_for_monitoring_alone(self):
        rules, policy = self.rules()
        monitoring = {"namespaceSelector": {
            "matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
        self.assertEqual(rules["admin"], [monitoring])
        self.assertNotIn(monitoring, rules["grpc"])
        self.assertEqual(policy["egress"], [])

    def test_no_list_of_peers_is_ever_empty(self):
        # An empty one would let in everybody.
        rendered = Chart({"networkPolicy": {"clients": [], "monitoring": []},
                          "test": {"enabled": False}})
        self.assertEqual(rendered.one("NetworkPolicy")["spec"]["ingress"], [])
        rules, _ = self.rules(clients=[], monitoring=[])
        self.assertEqual(list(rules), ["grpc"])
        self.assertEqual(len(rules["grpc"]), 1)

    def test_the_test_pod_is_let_in_and_gets_no_calls(self):
        rendered = Chart({"networkPolicy": {"clients": []}})
        [peer] = rendered.one("NetworkPolicy")["spec"]["ingress"][0]["from"]
        labels = rendered.one("Pod")["metadata"]["labels"]
        self.assertTrue(selects(peer["podSelector"]["matchLabels"], labels))
        for service in rendered.all("Service"):
            self.assertFalse(selects(service["spec"]["selector"], labels))


class ReferencesTest(unittest.TestCase):
    """Names that one object has of another, which no schema compares."""

    @classmethod
    def setUpClass(cls):
        cls.charts = {name: Chart(values) for name, values in chart.value_files().items()}
        cls.charts["defaults"] = Chart()

    def test_selectors_find_the_servers(self):
        for name, rendered in self.charts.items():
            template = rendered.one("Deployment")["spec"]["template"]
            labels = template["metadata"]["labels"]
            selectors = [service["spec"]["selector"] for service in rendered.all("Service")]
            for kind, member in (("Deployment", "selector"), ("PodDisruptionBudget", "selector"),
                                 ("NetworkPolicy", "podSelector")):
                selectors += [o["spec"][member]["matchLabels"] for o in rendered.all(kind)]
            for selector in selectors:
                with self.subTest(name):
                    self.assertTrue(selects(selector, labels), selector)

    def test_ports_have_names_that_exist(self):
        for name, rendered in self.charts.items():
            ports = named_ports(rendered.pod())
            conf = rendered.conf()
            with self.subTest(name):
                self.assertEqual(ports["grpc"], int(conf["port"]))
                self.assertEqual(ports["admin"], int(conf["admin_address"].rsplit(":", 1)[1]))
            for service in rendered.all("Service"):
                for port in service["spec"]["ports"]:
                    self.assertIn(port["targetPort"], ports, name)
                    if service["spec"].get("clusterIP") == "None":
                        # Nothing translates: clients go to the pod's port.
                        self.assertEqual(port["port"], ports[port["targetPort"]], name)
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                if probe in rendered.server():
                    self.assertEqual(rendered.server()[probe]["grpc"]["port"], ports["admin"])

    def test_volumes_and_accounts_exist(self):
        for name, rendered in self.charts.items():
            maps = {o["metadata"]["name"] for o in rendered.all("ConfigMap")}
            for pod in [rendered.pod()] + [p["spec"] for p in rendered.all("Pod")]:
                volumes = {volume["name"]: volume for volume in pod["volumes"]}
                with self.subTest(name):
                    self.assertEqual(len(volumes), len(pod["volumes"]))
                    for container in pod["containers"] + pod.get("initContainers", []):
                        for mount in container.get("volumeMounts", []):
                            self.assertIn(mount["name"], volumes)
                    for volume in volumes.values():
                        if "configMap" in volume:
                            self.assertIn(volume["configMap"]["name"], maps)
            account = rendered.pod()["serviceAccountName"]
            if rendered.all("ServiceAccount"):
                self.assertEqual(rendered.one("ServiceAccount")["metadata"]["name"], account)
            else:
                self.assertEqual(account, "default")

    def test_autoscalers_name_the_deployment_which_then_says_no_number(self):
        for name in ("everything-values.yaml", "hpa-values.yaml", "zero-values.yaml"):
            rendered = self.charts[name]
            deployment = rendered.one("Deployment")
            [scaler] = rendered.all("ScaledObject") + rendered.all("HorizontalPodAutoscaler")
            self.assertEqual(scaler["spec"]["scaleTargetRef"]["name"],
                             deployment["metadata"]["name"])
            self.assertNotIn("replicas", deployment["spec"], name)
        self.assertEqual(self.charts["defaults"].one("Deployment")["spec"]["replicas"], 2)

    def test_names_fit_however_long_the_release_is_called(self):
        rendered = Chart({"metrics": {"serviceMonitor": {"enabled": True}}}, release="r" * 53)
        for kind, name in rendered.objects:
            self.assertLessEqual(len(name), 63, kind)


    def test_releases_whose_names_a_service_cannot_have_are_refused(self):
        for release in ("9lives", "attnd.team"):
            error = Chart(release=release).error
            self.assertIn("fullnameOverride: a Service cannot be called", error)
            rendered = Chart({"fullnameOverride": "attnd"}, release=release)
            self.assertTrue(rendered.one("Service", "attnd"))

    def test_a_name_that_is_cut_ends_with_a_letter(self):
        rendered = Chart(release="r" * 50 + "--x")
        self.assertTrue(rendered.one("Deployment", "r" * 50))


class ResourcesTest(unittest.TestCase):

    def resources(self, **values):
        return Chart(values).server()["resources"]

    def test_memory_is_the_sum_of_what_attnd_may_take(self):
        cpu = {"gpu": {"enabled": False}}
        self.assertEqual(self.resources(**cpu)["limits"]["memory"], "4352Mi")
        self.assertEqual(self.resources()["limits"]["memory"], "6400Mi")
        self.assertEqual(self.resources(gpu={"count": 8})["limits"]["memory"], "13568Mi")
        got = self.resources(memory={"limitMiB": 1000, "overheadMiB": 100},
                             regions={**REGIONS, "memoryMiB": 10}, sidecars=CLIENT)
        self.assertEqual(got["limits"]["memory"], "1110Mi")
        self.assertEqual(got["limits"]["memory"], got["requests"]["memory"])

    def test_a_gpu_is_asked_for_or_hidden(self):
        rendered = Chart()
        self.assertEqual(rendered.server()["resources"]["limits"]["nvidia.com/gpu"], 1)
        self.assertEqual(rendered.conf()["device"], "cuda")
        rendered = Chart({"gpu": {"enabled": False}})
        self.assertNotIn("nvidia.com/gpu", rendered.server()["resources"]["limits"])
        self.assertIn({"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
                      rendered.server()["env"])
        self.assertEqual(rendered.conf()["device"], "cpu")
        self.assertNotIn("tolerations", rendered.pod())

    def test_threads_are_those_of_the_pod_and_not_of_the_node(self):
        conf = Chart({"gpu": {"enabled": False}, "cpu": {"cores": 24}}).conf()
        self.assertEqual((conf["threads"], conf["io_threads"]), ("24", "16"))

    def test_no_limit_on_processors_unless_asked_for(self):
        self.assertNotIn("cpu", self.resources()["limits"])
        self.assertEqual(self.resources(cpu={"cores": 3, "limit": True})["limits"]["cpu"], 3)


class ConfigurationTest(unittest.TestCase):

    def test_flags_keep_their_values(self):
        conf = Chart({"config": {"max_queue_requests": 1000000, "max_queue_flops": 1e16,
                                 "long_links": True, "max_batch_delay": "200us",
                                 "region_group": "a b"}}).conf()
        self.assertEqual(conf["max_queue_requests"], "1000000")
        self.assertEqual(float(conf["max_queue_flops"]), 1e16)
        self.assertEqual(conf["long_links"], "true")
        self.assertEqual(conf["max_batch_delay"], "200us")
        self.assertEqual(conf["region_group"], "a b")

    def test_the_time_of_slow_calls_is_one_that_attnd_reads(self):
        for seconds, flag in ((0, "0ms"), (0.00001, "10us"), (0.000001, "1us"), (0.25, "250ms"),
                              (1.0000005, "1000001us"), (3, "3000ms"), (86400, "86400000ms")):
            conf = Chart({"server": {"slowSeconds": seconds}}).conf()
            self.assertEqual(conf["slow_time"], flag)
        self.assertNotIn("slow_time", Chart().conf())

    def test_targets_are_never_0(self):
        rendered = Chart({"autoscaling": {
            "enabled": True, "kind": "hpa", "queueTime": {"targetSeconds": 0.001},
            "busy": {"target": 0.001}}})
        for metric in rendered.one("HorizontalPodAutoscaler")["spec"]["metrics"]:
            self.assertEqual(metric["external"]["target"]["value"], "1m")

    def test_another_configuration_makes_other_pods(self):
        def checksum(values):
            template = Chart(values).one("Deployment")["spec"]["template"]
            return template["metadata"]["annotations"]["checksum/config"]

        self.assertEqual(checksum({}), checksum({"replicaCount": 7}))
        self.assertNotEqual(checksum({}), checksum({"config": {"lanes": 5}}))

    def test_an_ipv6_address_is_in_brackets_where_a_port_follows(self):
        conf = Chart({"server": {"listen": "::"}}).conf()
        self.assertEqual((conf["host"], conf["admin_address"]), ("::", "[::]:7412"))

    def test_alerts_are_as_they_stand(self):
        rendered = Chart({"metrics": {"rules": {"enabled": True}}})
        groups = rendered.one("PrometheusRule")["spec"]["groups"]
        self.assertTrue(groups)
        # Prometheus' own templates reach it unchanged.
        self.assertIn("{{ $labels.instance }}", str(groups))

    def test_one_server_a_node_where_its_socket_is_the_nodes(self):
        pod = Chart({"regions": {**REGIONS, "hostPath": "/run/attnd"},
                     "strategy": {"maxSurge": 0, "maxUnavailable": 1}}).pod()
        [apart] = pod["affinity"]["podAntiAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"]
        self.assertEqual(apart["topologyKey"], "kubernetes.io/hostname")


if __name__ == "__main__":
    chart.main()

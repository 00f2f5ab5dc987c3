"""A Kubernetes API server on this machine: the few calls that scaling makes, as the API answers.

Workloads have resource versions, a status that follows with a delay of its own, and a controller
that ends pods in Kubernetes' order. The shapes are those of the API's reference.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_COST = "controller.kubernetes.io/pod-deletion-cost"
_WORKLOAD = re.compile(
    r"/apis/apps/v1/namespaces/(?P<ns>[^/]+)/(?P<kind>deployments|statefulsets)/(?P<name>[^/]+)"
    r"(?P<scale>/scale)?"
)
_POD = re.compile(r"/api/v1/namespaces/(?P<ns>[^/]+)/pods/(?P<name>[^/]+)")
_RIVALS = re.compile(r"/apis/autoscaling/v2/namespaces/(?P<ns>[^/]+)/horizontalpodautoscalers")


@dataclass
class Workload:
    """A Deployment or StatefulSet with its pods."""

    replicas: int | None
    pods: dict[str, int] = field(default_factory=dict)
    version: int = 1
    generation: int = 1
    observed: int = 1


class KubernetesApi:
    """Serves one namespace, ``shop``, until closed; records the requests."""

    def __init__(self) -> None:
        self.workloads = {
            ("deployments", "orders"): Workload(2, {"orders-a": 0, "orders-b": 0}),
            ("statefulsets", "clicks"): Workload(1, {"clicks-0": 0}),
        }
        self.rivals: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str]] = []
        self.refused: dict[tuple[str, str], int] = {}
        self.before_update: Callable[[Workload], None] = lambda workload: None
        self.pause = threading.Event()
        self.pause.set()
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                path = self.path.partition("?")[0]
                api.pause.wait(30.0)
                status, answer = api.answer(self.command, path, body)
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_PATCH = _serve

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.pause.set()
        self._server.shutdown()
        self._server.server_close()

    def kubeconfig(self, directory: Path) -> Path:
        path = directory / "kubeconfig"
        at = {"name": "here", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        context = {"cluster": "here", "user": "me", "namespace": "shop"}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [at],
            "users": [{"name": "me", "user": {"token": "t"}}],
            "contexts": [{"name": "here", "context": context}],
            "current-context": "here",
        }
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    def reconcile(self, kind: str, name: str) -> None:
        """Do what the workload's controller does: start and end pods, and report it."""
        workload = self.workloads[kind, name]
        wanted = 1 if workload.replicas is None else workload.replicas
        number = 0
        while len(workload.pods) < wanted:
            pod = f"{name}-{number}" if kind == "statefulsets" else f"{name}-{number:x}new"
            workload.pods.setdefault(pod, 0)
            number += 1
        while len(workload.pods) > wanted:
            if kind == "statefulsets":
                workload.pods.pop(max(workload.pods, key=lambda pod: int(pod.rpartition("-")[2])))
            else:
                workload.pods.pop(min(workload.pods, key=lambda pod: workload.pods[pod]))
        workload.observed = workload.generation
        workload.version += 1

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        self.requests.append((method, path))
        for (verb, part), status in self.refused.items():
            if verb == method and part in path:
                return _failure(status)
        if (found := _WORKLOAD.fullmatch(path)) is not None:
            workload = self.workloads.get((found["kind"], found["name"]))
            if workload is None or found["ns"] != "shop":
                return _failure(404)
            if method == "PUT" and found["scale"]:
                return self._scale(workload, found["name"], body)
            return 200, _document(found["kind"], found["name"], workload)
        if (found := _POD.fullmatch(path)) is not None:
            for (_, name), workload in self.workloads.items():
                if found["name"] in workload.pods:
                    if method == "PATCH":
                        cost = body["metadata"]["annotations"][_COST]
                        workload.pods[found["name"]] = int(cost or 0)
                    metadata = {"name": found["name"], "labels": {"app": name, "hash": "5f"}}
                    return 200, {"kind": "Pod", "apiVersion": "v1", "metadata": metadata}
        if _RIVALS.fullmatch(path) is not None:
            kind = "HorizontalPodAutoscalerList"
            return 200, {"kind": kind, "apiVersion": "autoscaling/v2", "items": self.rivals}
        return _failure(404)

    def _scale(self, workload: Workload, name: str, body: Any) -> tuple[int, Any]:
        self.before_update(workload)
        if body["metadata"]["resourceVersion"] != str(workload.version):
            return _failure(409)
        workload.replicas = body["spec"]["replicas"]
        workload.version += 1
        workload.generation += 1
        return 200, {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {"name": name, "resourceVersion": str(workload.version)},
            "spec": {"replicas": workload.replicas},
        }


def _failure(status: int) -> tuple[int, Any]:
    message = f"the server answers {status}"
    return status, {"kind": "Status", "apiVersion": "v1", "message": message, "code": status}


def _document(kind: str, name: str, workload: Workload) -> Any:
    spec: dict[str, Any] = {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": []}},
    }
    if kind == "statefulsets":
        spec["serviceName"] = name
    if workload.replicas is not None:
        spec["replicas"] = workload.replicas
    pods = len(workload.pods)
    status: dict[str, Any] = {"observedGeneration": workload.observed, "replicas": pods}
    # the API leaves out a count of 0
    if pods:
        status["readyReplicas"] = pods
    elif kind == "deployments":
        del status["replicas"]
    return {
        "kind": {"deployments": "Deployment", "statefulsets": "StatefulSet"}[kind],
        "apiVersion": "apps/v1",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "resourceVersion": str(workload.version),
            "generation": workload.generation,
        },
        "spec": spec,
        "status": status,
    }

"""Scales a Deployment or a StatefulSet of Kubernetes through its API."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.replicas.protocols import Count
from metrics_reporter.documents import shown

# Kubernetes' own order of removal: pods with the lowest cost go first.
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_LEAVES_FIRST = "-1000"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_KINDS = {"deployment": "Deployment", "statefulset": "StatefulSet"}


@dataclass(frozen=True)
class KubernetesSettings:
    """Tunable numbers of the requests.

    Parameters
    ----------
    connect_seconds, answer_seconds
        Until a connection, and then an answer, must be there.
    attempts
        How often a change is tried while the object changes in other ways, such as its status.
    """

    connect_seconds: float = 5.0
    answer_seconds: float = 15.0
    attempts: int = 5


class KubernetesReplicas:
    """The pods of one workload.

    A change names the version of the workload that it was based on, so that of two writers one is
    refused. Of a Deployment the pods that are to leave go first; a StatefulSet ends those with the
    highest numbers.

    Parameters
    ----------
    workload
        ``deployment/NAME`` or ``statefulset/NAME``.
    namespace
        Its namespace; by default that of the pod this runs in, or of the context.
    kubeconfig, context
        Where the API is, if not that of the pod this runs in.
    settings
        Tunable numbers.

    Attributes
    ----------
    name : str
        ``deployment/NAME in NAMESPACE``.

    Raises
    ------
    AutoscalingError
        In one sentence: an unknown workload, no rights, no answer, or an autoscaler of Kubernetes
        that scales the same workload.
    """

    def __init__(
        self,
        workload: str,
        namespace: str | None = None,
        kubeconfig: Path | None = None,
        context: str | None = None,
        settings: KubernetesSettings | None = None,
    ) -> None:
        kind, slash, name = workload.partition("/")
        if not slash or kind not in _KINDS or _NAME.fullmatch(name) is None:
            raise AutoscalingError(
                f"workload: {shown(workload)} found, deployment/NAME or statefulset/NAME expected"
            )
        self._settings = settings or KubernetesSettings()
        self._client, found = _client(kubeconfig, context)
        self._kind, self._workload = kind, name
        self._namespace = namespace or found
        if _NAME.fullmatch(self._namespace) is None:
            raise AutoscalingError(
                f"namespace: {shown(self._namespace)} found, the name of a namespace expected"
            )
        self.name = f"{kind}/{name} in {self._namespace}"
        try:
            self.count()
            self._check_rivals()
        except AutoscalingError:
            self.close()
            raise

    def count(self) -> Count:
        """Pods that were asked for, run and are ready."""
        found = self._read()
        status, requested = found.status, _requested(found)
        running, ready = status.replicas or 0, status.ready_replicas or 0
        noticed = (status.observed_generation or 0) >= (found.metadata.generation or 0)
        settled = noticed and running == ready == requested
        return Count(requested, ready, running, settled)

    def request(self, consumers: int, seen: Count, leaving: Sequence[str] = ()) -> None:
        """Set the number of pods, if it is still the one that was seen."""
        if consumers < 0:
            raise AutoscalingError(f"{consumers} consumers found, at least 0 expected")
        found = self._unchanged(seen)
        marked = self._mark(leaving, found) if self._kind == "deployment" else []
        try:
            for _ in range(self._settings.attempts):
                if self._replace(consumers, found.metadata.resource_version):
                    return
                found = self._unchanged(seen)
            raise AutoscalingError(
                f"{self.name}: changed during each of {self._settings.attempts} attempts to "
                "scale it"
            )
        except AutoscalingError:
            for pod in marked:
                with suppress(AutoscalingError):
                    self._set_cost(pod, None)
            raise

    def stand_down(self) -> bool:
        """Nothing: the pods are those of every controller."""
        return False

    def close(self) -> None:
        """Close the connections; the pods stay."""
        self._client.close()

    def _read(self) -> Any:
        api = _kubernetes().client.AppsV1Api(self._client)
        read = (
            api.read_namespaced_deployment
            if self._kind == "deployment"
            else api.read_namespaced_stateful_set
        )
        return self._call("get", f"{self._kind}s", lambda **timeout: read(*self._at, **timeout))

    def _unchanged(self, seen: Count) -> Any:
        """The workload, if its number is still the one that was seen."""
        found = self._read()
        if (now := _requested(found)) != seen.requested:
            raise AutoscalingError(
                f"{self.name}: someone else changed it from {seen.requested} to {now} "
                "replicas, one writer expected"
            )
        return found

    def _replace(self, consumers: int, version: str) -> bool:
        """Whether the number was set; not if the object has changed since this version."""
        module = _kubernetes().client
        api = module.AppsV1Api(self._client)
        replace = (
            api.replace_namespaced_deployment_scale
            if self._kind == "deployment"
            else api.replace_namespaced_stateful_set_scale
        )
        body = module.V1Scale(
            api_version="autoscaling/v1",
            kind="Scale",
            metadata=module.V1ObjectMeta(
                name=self._workload, namespace=self._namespace, resource_version=version
            ),
            spec=module.V1ScaleSpec(replicas=consumers),
        )
        try:
            self._call(
                "update",
                f"{self._kind}s/scale",
                lambda **timeout: replace(*self._at, body, **timeout),
            )
        except _ConflictError:
            return False
        return True

    def _mark(self, leaving: Sequence[str], workload: Any) -> list[str]:
        """Have Kubernetes end these pods first; names of no pod of the workload are left out."""
        api = _kubernetes().client.CoreV1Api(self._client)
        labels = (workload.spec.selector.match_labels or {}).items()
        marked = []
        for pod in leaving:
            # consumers may have any name, also one that would be another path
            if _NAME.fullmatch(pod) is None:
                continue
            with suppress(_MissingError):
                found = self._call(
                    "get",
                    "pods",
                    lambda pod=pod, **timeout: api.read_namespaced_pod(
                        pod, self._namespace, **timeout
                    ),
                )
                if labels and labels <= (found.metadata.labels or {}).items():
                    self._set_cost(pod, _LEAVES_FIRST)
                    marked.append(pod)
        return marked

    def _set_cost(self, pod: str, cost: str | None) -> None:
        """What it costs to end a pod; None for its cost without an annotation."""
        api = _kubernetes().client.CoreV1Api(self._client)
        body = {"metadata": {"annotations": {_DELETION_COST: cost}}}
        self._call(
            "patch",
            "pods",
            lambda **timeout: api.patch_namespaced_pod(pod, self._namespace, body, **timeout),
        )

    def _check_rivals(self) -> None:
        api = _kubernetes().client.AutoscalingV2Api(self._client)
        found = self._call(
            "list",
            "horizontalpodautoscalers",
            lambda **timeout: api.list_namespaced_horizontal_pod_autoscaler(
                self._namespace, **timeout
            ),
        )
        for rival in found.items:
            target = rival.spec.scale_target_ref
            if (target.kind, target.name) == (_KINDS[self._kind], self._workload):
                raise AutoscalingError(
                    f"{self.name}: the HorizontalPodAutoscaler {rival.metadata.name} scales it "
                    "too, one writer expected; delete it, or let KEDA ask this program"
                )

    @property
    def _at(self) -> tuple[str, str]:
        return self._workload, self._namespace

    def _call(self, verb: str, resource: str, call: Callable[..., Any]) -> Any:
        """An answer within the time allowed, or one sentence."""
        client = _kubernetes().client
        s = self._settings
        try:
            return call(_request_timeout=(s.connect_seconds, s.answer_seconds))
        except client.ApiException as error:
            if error.status == 409:
                raise _ConflictError(f"{self.name}: it changed meanwhile") from None
            if error.status in (401, 403):
                raise AutoscalingError(
                    f"{self.name}: no rights, {verb} of {resource} in namespace "
                    f"{self._namespace} expected"
                ) from None
            if error.status == 404:
                raise _MissingError(
                    f"{self._kind} {shown(self._workload)} not found in namespace {self._namespace}"
                ) from None
            raise AutoscalingError(
                f"{self.name}: {verb} of {resource} failed: {_message(error)}"
            ) from None
        except (OSError, ValueError, client.OpenApiException, *_transport_errors()) as error:
            raise AutoscalingError(
                f"{self.name}: {verb} of {resource} got no answer from "
                f"{self._client.configuration.host}: {_first_line(error)}"
            ) from None


class _MissingError(AutoscalingError):
    """There is no such object."""


class _ConflictError(AutoscalingError):
    """The object has changed since it was read."""


def _requested(workload: Any) -> int:
    replicas = workload.spec.replicas
    # Kubernetes runs one pod if nothing is said
    return 1 if replicas is None else int(replicas)


def _kubernetes() -> Any:
    try:
        import kubernetes
    except ImportError:
        raise AutoscalingError(
            "kubernetes is not installed: pip install 'counterpoise[autoscaling]'"
        ) from None
    return kubernetes


def _transport_errors() -> tuple[type[Exception], ...]:
    import urllib3

    return (urllib3.exceptions.HTTPError,)


def _client(kubeconfig: Path | None, context: str | None) -> tuple[Any, str]:
    """A client of the API, and the namespace that goes with it."""
    module = _kubernetes()
    configuration = module.client.Configuration()
    inside = kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ
    namespace = "default"
    try:
        if inside:
            module.config.load_incluster_config(client_configuration=configuration)
            own = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
            namespace = own.read_text(encoding="utf-8").strip() if own.is_file() else namespace
        else:
            file = None if kubeconfig is None else str(kubeconfig)
            module.config.load_kube_config(
                config_file=file, context=context, client_configuration=configuration
            )
            contexts, active = module.config.list_kube_config_contexts(config_file=file)
            chosen = active if context is None else {c["name"]: c for c in contexts}[context]
            namespace = str(chosen["context"].get("namespace", namespace))
    # the client raises whatever it stumbles over in a broken file
    except Exception as error:
        where = "the pod's service account" if inside else str(kubeconfig or "~/.kube/config")
        raise AutoscalingError(f"{where}: {_first_line(error)}") from None
    # a deadline is a deadline: the caller looks again in its next round
    configuration.retries = False
    return module.client.ApiClient(configuration), namespace


def _message(error: Any) -> str:
    """What the API says, which is a sentence in its answer's body."""
    try:
        return str(json.loads(error.body)["message"])
    except (KeyError, TypeError, ValueError):
        return f"{error.status} {error.reason}"


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]

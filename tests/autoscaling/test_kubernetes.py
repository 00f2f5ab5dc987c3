"""Deployments and StatefulSets are scaled through the official client against a local API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes_api import KubernetesApi, Workload

from balancer.autoscaling.errors import AutoscalingError
from balancer.autoscaling.replicas import (
    Count,
    KubernetesReplicas,
    KubernetesSettings,
    Scaler,
    ScalingLimits,
)


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    started = KubernetesApi()
    yield started
    started.close()


@pytest.fixture
def config(api: KubernetesApi, tmp_path: Path) -> Path:
    return api.kubeconfig(tmp_path)


@pytest.fixture
def orders(config: Path) -> Iterator[KubernetesReplicas]:
    replicas = KubernetesReplicas("deployment/orders", kubeconfig=config)
    yield replicas
    replicas.close()


def refused(sentence: str, workload: str, config: Path, namespace: str | None = None) -> None:
    with pytest.raises(AutoscalingError) as caught:
        KubernetesReplicas(workload, namespace, kubeconfig=config)
    assert re.fullmatch(sentence, str(caught.value)), str(caught.value)


def test_a_deployment_grows_and_shrinks(api: KubernetesApi, orders: KubernetesReplicas) -> None:
    assert orders.name == "deployment/orders in shop"
    seen = orders.count()
    assert seen == Count(requested=2, ready=2, running=2, settled=True)
    orders.request(5, seen)
    assert orders.count() == Count(requested=5, ready=2, running=2, settled=False)
    api.reconcile("deployments", "orders")
    assert orders.count() == Count(requested=5, ready=5, running=5, settled=True)
    orders.request(0, orders.count())
    api.reconcile("deployments", "orders")
    assert orders.count() == Count(requested=0, ready=0, running=0, settled=True)
    assert {method for method, _ in api.requests} == {"GET", "PUT"}


def test_the_pods_that_leave_are_those_of_the_decision(
    api: KubernetesApi, orders: KubernetesReplicas
) -> None:
    orders.request(1, orders.count(), leaving=["no-pod-of-this-name", "orders-a"])
    api.reconcile("deployments", "orders")
    assert list(api.workloads["deployments", "orders"].pods) == ["orders-b"]


@pytest.mark.parametrize(
    "name", ["..", "../../../../apis/x", "a/b?c=d", "consumer-ü", "", "clicks-0", "orders-a/log"]
)
def test_only_pods_of_the_workload_are_marked(
    api: KubernetesApi, orders: KubernetesReplicas, name: str
) -> None:
    orders.request(1, orders.count(), leaving=[name])
    assert not [method for method, _ in api.requests if method == "PATCH"]
    assert all(path.startswith("/api") and ".." not in path for _, path in api.requests)
    assert api.workloads["statefulsets", "clicks"].pods == {"clicks-0": 0}


def test_a_change_that_is_refused_leaves_no_marks(
    api: KubernetesApi, orders: KubernetesReplicas
) -> None:
    seen = orders.count()
    api.refused = {("PUT", "/scale"): 403}
    with pytest.raises(AutoscalingError, match="no rights"):
        orders.request(1, seen, leaving=["orders-b"])
    assert api.workloads["deployments", "orders"].pods == {"orders-a": 0, "orders-b": 0}
    api.refused, api.requests = {}, []
    api.workloads["deployments", "orders"].replicas = 5
    with pytest.raises(AutoscalingError, match="someone else changed it"):
        orders.request(1, seen, leaving=["orders-b"])
    assert {method for method, _ in api.requests} == {"GET"}


@pytest.mark.parametrize(
    "content",
    [
        "{}", "a: b", "[1]", "", "\0", "{", "apiVersion: v1\nkind: Config\ncontexts: [1]\n",
        "kind: Config\ncontexts: [1]\ncurrent-context: x\n",
        "clusters: [{name: h, cluster: {server: 5}}]\nusers: [{name: m, user: {}}]\n"
        "contexts: [{name: c, context: {cluster: h, user: m}}]\ncurrent-context: c\n",
        "clusters: [{name: h, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "users: [{name: m, user: {}}]\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: h, user: m, namespace: [5]}}]\n",
        "clusters: [{name: h, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "users: [{name: m, user: {}}]\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: h, user: m, namespace: 5}}]\n",
    ],
)  # fmt: skip
def test_a_broken_kubeconfig_is_one_sentence(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(AutoscalingError) as caught:
        KubernetesReplicas("deployment/orders", kubeconfig=path)
    assert len(str(caught.value).splitlines()) == 1


def test_a_stateful_set_ends_its_last_pods(api: KubernetesApi, config: Path) -> None:
    clicks = KubernetesReplicas("statefulset/clicks", "shop", kubeconfig=config)
    clicks.request(3, clicks.count())
    api.reconcile("statefulsets", "clicks")
    clicks.request(2, clicks.count(), leaving=["clicks-0"])
    api.reconcile("statefulsets", "clicks")
    assert list(api.workloads["statefulsets", "clicks"].pods) == ["clicks-0", "clicks-1"]
    clicks.close()


def test_without_a_number_there_is_one_pod(api: KubernetesApi, orders: KubernetesReplicas) -> None:
    api.workloads["deployments", "orders"].replicas = None
    api.reconcile("deployments", "orders")
    assert orders.count() == Count(requested=1, ready=1, running=1, settled=True)


def test_a_status_that_changes_meanwhile_is_no_conflict(
    api: KubernetesApi, orders: KubernetesReplicas
) -> None:
    changes = iter([True, True, False])

    def change(workload: Workload) -> None:
        workload.version += next(changes)

    api.before_update = change
    orders.request(4, orders.count())
    assert orders.count().requested == 4


def test_a_second_writer_is_found(api: KubernetesApi, orders: KubernetesReplicas) -> None:
    def change(workload: Workload) -> None:
        workload.replicas, workload.version = 7, workload.version + 1

    api.before_update = change
    with pytest.raises(AutoscalingError, match="someone else changed it from 2 to 7 replicas"):
        orders.request(4, orders.count())
    assert api.workloads["deployments", "orders"].replicas == 7


def test_an_object_that_never_rests_is_given_up(
    api: KubernetesApi, orders: KubernetesReplicas
) -> None:
    def change(workload: Workload) -> None:
        workload.version += 1

    api.before_update = change
    with pytest.raises(AutoscalingError, match="changed during each of 5 attempts"):
        orders.request(4, orders.count())


def test_another_autoscaler_of_the_same_workload_is_found(api: KubernetesApi, config: Path) -> None:
    def rival(kind: str, name: str) -> dict[str, object]:
        target = {"apiVersion": "apps/v1", "kind": kind, "name": name}
        return {"metadata": {"name": "hpa"}, "spec": {"maxReplicas": 9, "scaleTargetRef": target}}

    api.rivals = [rival("StatefulSet", "orders"), rival("Deployment", "other")]
    KubernetesReplicas("deployment/orders", kubeconfig=config).close()
    api.rivals.append(rival("Deployment", "orders"))
    refused(
        "deployment/orders in shop: the HorizontalPodAutoscaler hpa scales it too, .*",
        "deployment/orders",
        config,
    )


def test_bad_input_is_one_sentence(api: KubernetesApi, config: Path, tmp_path: Path) -> None:
    refused("deployment '?missing'? not found in namespace shop", "deployment/missing", config)
    refused(
        "deployment '?orders'? not found in namespace other", "deployment/orders", config, "other"
    )
    kinds = "workload: '?.*'? found, deployment/NAME or statefulset/NAME expected"
    for workload in ("orders", "pod/orders", "deployment/", "deployment/../x", "deployment/Ä"):
        refused(kinds, workload, config)
    refused(
        "namespace: .* found, the name of a namespace expected", "deployment/orders", config, ".."
    )
    missing = tmp_path / "missing"
    refused(f"{missing}: .*", "deployment/orders", missing)
    for status in (401, 403):
        api.refused = {("GET", "/deployments/orders"): status}
        refused(
            "deployment/orders in shop: no rights, get of deployments in namespace shop expected",
            "deployment/orders",
            config,
        )
    api.refused = {("GET", "/deployments/orders"): 500}
    refused(
        "deployment/orders in shop: get of deployments failed: the server answers 500",
        "deployment/orders",
        config,
    )


def test_no_right_to_scale_is_one_sentence(api: KubernetesApi, orders: KubernetesReplicas) -> None:
    api.refused = {("PUT", "/scale"): 403}
    with pytest.raises(AutoscalingError, match="no rights, update of deployments/scale in namesp"):
        orders.request(3, orders.count())
    with pytest.raises(AutoscalingError, match="-1 consumers found, at least 0 expected"):
        orders.request(-1, orders.count())


def test_a_server_that_does_not_answer_is_given_up(api: KubernetesApi, config: Path) -> None:
    settings = KubernetesSettings(connect_seconds=0.2, answer_seconds=0.2)
    orders = KubernetesReplicas("deployment/orders", kubeconfig=config, settings=settings)
    api.pause.clear()
    at = f"http://127.0.0.1:{api.port}"
    with pytest.raises(AutoscalingError, match=f"get of deployments got no answer from {at}: "):
        orders.count()
    api.close()
    with pytest.raises(AutoscalingError, match=f"get of deployments got no answer from {at}: "):
        orders.count()
    orders.close()


def test_a_decision_becomes_pods_one_change_at_a_time(
    api: KubernetesApi, orders: KubernetesReplicas
) -> None:
    scaler = Scaler(orders, ScalingLimits(maximum=4, down_cooldown=0.0))
    assert scaler.apply(9).reason == "2 -> 4 consumers, at most 4 allowed"
    held = scaler.apply(3)
    assert (held.kind, held.consumers) == ("held", 4)
    assert held.reason == "4 -> 3 consumers: the last change is being carried out, 2 of 4 ready"
    api.reconcile("deployments", "orders")
    assert scaler.apply(3, leaving=["orders-a", "orders-b"]).kind == "changed"
    api.reconcile("deployments", "orders")
    pods = api.workloads["deployments", "orders"].pods
    assert "orders-a" not in pods
    assert "orders-b" in pods

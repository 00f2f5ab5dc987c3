"""Metrics of the cluster and of the server for Prometheus, beside those of the controller."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client import Counter as PromCounter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from balancer.approval import ProposalState
from balancer.server.errors import RequestError
from balancer.server.service import Service

_STATES: tuple[ProposalState, ...] = (
    "open",
    "approved",
    "executing",
    "stale",
    "failed",
    "interrupted",
)


class ServerMetrics:
    """The page of ``/metrics``.

    Parameters
    ----------
    service
        The running controller.
    controller
        Makes the text of the controller's own metrics.
    listeners
        How many clients follow events.
    """

    def __init__(
        self, service: Service, controller: Callable[[], str], listeners: Callable[[], int]
    ) -> None:
        self._controller = controller
        self._registry = CollectorRegistry()
        self._registry.register(_Cluster(service, listeners))
        self.requests = Histogram(
            "counterpoise_http_request_seconds",
            "Time to answer requests; of event streams, until their end.",
            ("method", "route", "status"),
            registry=self._registry,
            buckets=(0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0),
        )
        self.errors = PromCounter(
            "counterpoise_server_errors",
            "Errors of what the server does in the background.",
            ("part",),
            registry=self._registry,
        )

    def text(self) -> str:
        """The page, in Prometheus' text format."""
        return self._controller() + generate_latest(self._registry).decode()


class Measured:
    """ASGI middleware that measures how long each answer takes.

    Parameters
    ----------
    app
        What answers.
    requests
        The histogram, by method, route and status.
    """

    def __init__(self, app: ASGIApp, requests: Histogram) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sent)
        finally:
            # The route's pattern, not the path: an attacker chooses paths.
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if route != "other" else "any"
            self._requests.labels(method, route, str(status)).observe(time.perf_counter() - started)


class _Cluster(Collector):
    """The cluster as the last look found it."""

    def __init__(self, service: Service, listeners: Callable[[], int]) -> None:
        self._service = service
        self._listeners = listeners

    def describe(self) -> Iterable[Metric]:
        """Nothing: the cluster is not read yet when this is registered."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The metrics now; those of the cluster once it has been read."""
        yield GaugeMetricFamily(
            "counterpoise_event_listeners", "Clients that follow events.", self._listeners()
        )
        yield GaugeMetricFamily(
            "counterpoise_held",
            "1 if a person holds back everything that has not started.",
            float(self._service.controller.held),
        )
        states = Counter(p.state for p in self._service.controller.approvals.store.all())
        proposals = GaugeMetricFamily(
            "counterpoise_proposals", "Proposals that are kept, by state.", labels=("state",)
        )
        for state in _STATES:
            proposals.add_metric((state,), states.get(state, 0))
        yield proposals
        try:
            load = self._service.load()
            goals = self._service.goals()
        except RequestError:
            return
        labels = ("broker", "rack", "resource")
        amount = GaugeMetricFamily(
            "counterpoise_broker_load", "Load of a broker, in its resource's unit.", labels=labels
        )
        share = GaugeMetricFamily(
            "counterpoise_broker_load_share", "Load of a broker over its capacity.", labels=labels
        )
        ratio = GaugeMetricFamily(
            "counterpoise_broker_load_ratio", "Load of a broker over its fair share.", labels=labels
        )
        alive = GaugeMetricFamily(
            "counterpoise_broker_alive", "1 if a broker is alive.", labels=labels[:2]
        )
        for broker in load.brokers():
            name = (str(broker.broker), broker.rack)
            alive.add_metric(name, float(broker.state == "alive"))
            for resource, figure in broker.figures.items():
                amount.add_metric((*name, resource), figure.amount)
                if figure.of_capacity is not None:
                    share.add_metric((*name, resource), figure.of_capacity)
                if figure.fair_shares is not None:
                    ratio.add_metric((*name, resource), figure.fair_shares)
        yield from (amount, share, ratio, alive)
        met = GaugeMetricFamily(
            "counterpoise_goal_met", "1 if a goal is met now.", labels=("goal", "hard")
        )
        for goal in (g for g in goals if g.met is not None):
            met.add_metric((goal.goal, str(goal.hard).lower()), float(bool(goal.met)))
        yield met
        totals = load.totals()
        for figure_name, about in (
            ("partitions", "Partitions of the cluster."),
            ("replicas_offline", "Replicas on dead brokers and disks."),
            ("partitions_without_leader", "Partitions without a leader."),
            ("partitions_reassigning", "Partitions that Kafka reassigns."),
        ):
            yield GaugeMetricFamily(
                f"counterpoise_cluster_{figure_name}", about, getattr(totals, figure_name)
            )

"""Keys of Cruise Control that set one setting of ours, and those without a counterpart."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Kind = Literal["number", "whole", "flag", "milliseconds", "kilobytes"]


class Rule(NamedTuple):
    """The setting of a key: its path in the settings file, and how the value is written."""

    setting: str
    kind: Kind
    note: str = ""


_SLOW, _EXECUTION = "slow_brokers", "execution"
_ADJUSTER = "concurrency.adjuster"
# Key to the setting that means the same.
RULES: dict[str, Rule] = {
    "num.concurrent.partition.movements.per.broker": Rule(
        f"{_EXECUTION}.concurrent_moves_per_broker", "whole"
    ),
    "num.concurrent.intra.broker.partition.movements": Rule(
        f"{_EXECUTION}.concurrent_log_dir_moves_per_broker", "whole"
    ),
    "num.concurrent.leader.movements": Rule(f"{_EXECUTION}.leadership_batch", "whole"),
    "default.replication.throttle": Rule(f"{_EXECUTION}.throttle", "whole", "bytes/s"),
    "default.log.dir.throttle": Rule(f"{_EXECUTION}.log_dir_throttle", "whole", "bytes/s"),
    "execution.progress.check.interval.ms": Rule(f"{_EXECUTION}.progress_interval", "milliseconds"),
    "leader.movement.timeout.ms": Rule(f"{_EXECUTION}.leadership_timeout", "milliseconds"),
    "admin.client.request.timeout.ms": Rule(f"{_EXECUTION}.timeout", "milliseconds"),
    f"{_ADJUSTER}.inter.broker.replica.enabled": Rule(f"{_EXECUTION}.adaptive", "flag"),
    f"{_ADJUSTER}.interval.ms": Rule(
        f"{_EXECUTION}.adaptive_interval",
        "milliseconds",
        "seconds between two increases",
    ),
    f"{_ADJUSTER}.limit.produce.local.time.ms": Rule(f"{_EXECUTION}.produce_local_ms", "number"),
    f"{_ADJUSTER}.limit.consumer.fetch.local.time.ms": Rule(
        f"{_EXECUTION}.consumer_fetch_local_ms", "number"
    ),
    f"{_ADJUSTER}.limit.follower.fetch.local.time.ms": Rule(
        f"{_EXECUTION}.follower_fetch_local_ms", "number"
    ),
    "anomaly.detection.interval.ms": Rule(
        "interval", "milliseconds", "from the end of a round to the start of the next"
    ),
    "broker.failure.alert.threshold.ms": Rule("dead_brokers.alert_after", "milliseconds"),
    "broker.failure.self.healing.threshold.ms": Rule("dead_brokers.heal_after", "milliseconds"),
    "fixable.failed.broker.count.threshold": Rule("dead_brokers.max_failed", "whole"),
    "fixable.failed.broker.percentage.threshold": Rule("dead_brokers.max_share", "number"),
    "partition.metrics.window.ms": Rule("model.window", "milliseconds"),
    "num.partition.metrics.windows": Rule("model.windows", "whole"),
    "min.samples.per.partition.metrics.window": Rule("model.min_samples", "whole"),
    "metadata.max.age.ms": Rule("model.refresh", "milliseconds"),
    "slow.broker.bytes.in.rate.detection.threshold": Rule(f"{_SLOW}.min_bytes_in", "kilobytes"),
    "slow.broker.log.flush.time.threshold.ms": Rule(
        f"{_SLOW}.signals.log_flush_time_ms_p999", "number"
    ),
    "slow.broker.metric.history.percentile.threshold": Rule(
        f"{_SLOW}.history_percentile", "number"
    ),
    "slow.broker.metric.history.margin": Rule(f"{_SLOW}.history_factor", "number"),
    "slow.broker.peer.metric.percentile.threshold": Rule(f"{_SLOW}.peer_percentile", "number"),
    "slow.broker.peer.metric.margin": Rule(f"{_SLOW}.peer_factor", "number"),
    "slow.broker.demotion.score": Rule(f"{_SLOW}.demote_score", "whole"),
    "slow.broker.decommission.score": Rule(f"{_SLOW}.remove_score", "whole"),
    "slow.broker.self.healing.unfixable.ratio": Rule(f"{_SLOW}.max_share", "number"),
    "self.healing.slow.broker.removal.enabled": Rule(f"{_SLOW}.remove", "flag"),
}

# Key of self healing of one kind of anomaly to the detector that may act on it.
HEALING = {
    "self.healing.broker.failure.enabled": "dead_brokers",
    "self.healing.goal.violation.enabled": "goal_violations",
    "self.healing.disk.failure.enabled": "dead_disks",
    "self.healing.metric.anomaly.enabled": "slow_brokers",
    "self.healing.topic.anomaly.enabled": "missing_replicas",
}

# Strategy for the order of moves to our order of tasks.
ORDERS = {
    "PostponeUrpReplicaMovementStrategy": "postpone_under_replicated",
    "PrioritizeLargeReplicaMovementStrategy": "largest_first",
    "PrioritizeSmallReplicaMovementStrategy": "smallest_first",
    "PrioritizeMinIsrWithOfflineReplicasStrategy": "under_min_isr_first",
    "BaseReplicaMovementStrategy": "plan_order",
}

_SERVER = "the web server of Cruise Control"
# Reason, and the keys that have no counterpart for it.
_WITHOUT: tuple[tuple[str, str], ...] = (
    (
        "all goals are always available: counterpoise goals list",
        "goals",
    ),
    ("one interval serves all detectors: interval in the settings", """
        goal.violation.detection.interval.ms metric.anomaly.detection.interval.ms
        disk.failure.detection.interval.ms topic.anomaly.detection.interval.ms
        broker.failure.detection.backoff.ms
    """),
    (
        "every strategy for the order of moves is always available: execution.order",
        "replica.movement.strategies",
    ),
    ("plans are made when they are asked for or needed, not in advance", """
        proposal.expiration.ms num.proposal.precompute.threads max.proposal.candidates
        allow.capacity.estimation.on.proposal.precompute fast.mode.per.broker.move.timeout.ms
        optimization.options.generator.class
    """),
    ("fixed to Cruise Control's defaults, 1.1 and 1.5", """
        goal.balancedness.priority.weight goal.balancedness.strictness.weight
    """),
    ("propose --right-size plans with fewer or more brokers, with --headroom", """
        overprovisioned.min.brokers overprovisioned.min.extra.racks
        overprovisioned.max.replicas.per.broker provisioner.class provisioner.enable
    """),
    ("capacities are stated or measured, never estimated", """
        sampling.allow.cpu.capacity.estimation anomaly.detection.allow.capacity.estimation
    """),
    ("cpu is attributed with weights of 0.7, 0.15 and 0.15, corrected until they add up to the cpu "
     "measured on each broker", """
        leader.network.inbound.weight.for.cpu.util leader.network.outbound.weight.for.cpu.util
        follower.network.inbound.weight.for.cpu.util use.linear.regression.model
        linear.regression.model.cpu.util.bucket.size
        linear.regression.model.required.samples.per.bucket
        linear.regression.model.min.num.cpu.util.buckets
    """),
    ("the metrics topic itself is read again after a restart: there is no sample store", """
        sample.store.class partition.metric.sample.store.topic broker.metric.sample.store.topic
        sample.store.topic.replication.factor num.sample.loading.threads skip.loading.samples
        partition.sample.store.topic.partition.count broker.sample.store.topic.partition.count
        min.partition.sample.store.topic.retention.time.ms
        min.broker.sample.store.topic.retention.time.ms
        skip.sample.store.topic.rack.awareness.check
        sample.partition.metric.store.on.execution.class
        partition.metric.sample.store.on.execution.topic
        partition.metric.sample.store.on.execution.topic.replication.factor
        partition.metric.sample.store.on.execution.topic.partition.count
        partition.metric.sample.store.on.execution.topic.retention.time.ms
    """),
    ("records of the metrics topic are read as they arrive", """
        metric.sampling.interval.ms num.metric.fetchers metric.sampler.partition.assignor.class
        metric.reporter.sampler.group.id metric.reporter.sampler.bootstrap.servers
        metric.reporter.topic.pattern monitor.state.update.interval.ms
    """),
    ("one window serves partitions and brokers: model.window, taken from the partitions'", """
        broker.metrics.window.ms num.broker.metrics.windows min.samples.per.broker.metrics.window
    """),
    ("fixed: a plan needs the loads of 95 % of the partitions", """
        min.valid.partition.ratio max.allowed.extrapolations.per.partition
        max.allowed.extrapolations.per.broker metadata.factor.exponent
        partition.metric.sample.aggregator.completeness.cache.size
        broker.metric.sample.aggregator.completeness.cache.size
    """),
    ("metrics of Prometheus come through counterpoise report-metrics --source prometheus", """
        prometheus.server.endpoint prometheus.query.resolution.step.ms
        prometheus.query.supplier prometheus.query.supplier.properties.file
    """),
    ("Kafka is asked through its own protocol: no ZooKeeper", """
        zookeeper.connect zookeeper.security.enabled failed.brokers.zk.path
        kafka.broker.failure.detection.enable
        network.client.provider.class topic.config.provider.class cluster.configs.file
        logdir.response.timeout.ms list.partition.reassignment.timeout.ms
        list.partition.reassignment.max.attempts
    """),
    ("set by the client library", """
        client.id send.buffer.bytes receive.buffer.bytes connections.max.idle.ms
        reconnect.backoff.ms reconnect.backoff.max.ms retry.backoff.ms
        default.api.timeout.ms
    """),
    ("moves of others are never cancelled: execution.others waits for them or skips them",
     "auto.stop.external.agent"),
    ("executions adapt by halving, and by one more at a time, for moves of replicas only", """
        concurrency.adjuster.leadership.enabled concurrency.adjuster.min.isr.check.enabled
        concurrency.adjuster.min.isr.cache.size concurrency.adjuster.min.isr.retention.ms
        concurrency.adjuster.num.min.isr.check
        concurrency.adjuster.max.partition.movements.per.broker
        concurrency.adjuster.min.partition.movements.per.broker
        concurrency.adjuster.max.leadership.movements concurrency.adjuster.min.leadership.movements
        concurrency.adjuster.max.leadership.movements.per.broker
        concurrency.adjuster.min.leadership.movements.per.broker
        concurrency.adjuster.leadership.per.broker.enabled
        concurrency.adjuster.limit.log.flush.time.ms concurrency.adjuster.limit.request.queue.size
        concurrency.adjuster.additive.increase.inter.broker.replica
        concurrency.adjuster.additive.increase.leadership
        concurrency.adjuster.additive.increase.leadership.per.broker
        concurrency.adjuster.multiplicative.decrease.inter.broker.replica
        concurrency.adjuster.multiplicative.decrease.leadership
        concurrency.adjuster.multiplicative.decrease.leadership.per.broker
        min.num.brokers.violate.metric.limit.to.decrease.cluster.concurrency
        num.concurrent.leader.movements.per.broker
    """),
    ("a task without progress for execution.task_timeout is given up, and said so", """
        task.execution.alerting.threshold.ms slow.task.alerting.backoff.ms
        inter.broker.replica.movement.rate.alerting.threshold
        intra.broker.replica.movement.rate.alerting.threshold
        min.execution.progress.check.interval.ms
    """),
    ("decisions and findings go to webhooks and notifiers in the settings file "
     "(counterpoise notifiers list)", """
        executor.notifier.class
        slack.self.healing.notifier.webhook slack.self.healing.notifier.icon
        slack.self.healing.notifier.user slack.self.healing.notifier.channel
        msteams.self.healing.notifier.webhook alerta.self.healing.notifier.api.url
        alerta.self.healing.notifier.api.key alerta.self.healing.notifier.environment
    """),
    ("brokers that were removed or demoted stay so by drained_brokers in the settings, or by "
     "--exclude-brokers-for-replicas and --exclude-brokers-for-leadership", """
        self.healing.exclude.recently.demoted.brokers self.healing.exclude.recently.removed.brokers
        broker.failure.exclude.recently.demoted.brokers
        broker.failure.exclude.recently.removed.brokers
        goal.violation.exclude.recently.demoted.brokers
        goal.violation.exclude.recently.removed.brokers
        demotion.history.retention.time.ms removal.history.retention.time.ms
    """),
    ("slow brokers are found by their own history and by their peers: slow_brokers", """
        metric.anomaly.percentile.upper.threshold metric.anomaly.percentile.lower.threshold
        metric.anomaly.upper.margin metric.anomaly.lower.margin metric.anomaly.analyzer.metrics
    """),
    ("a detector of your own (counterpoise detectors list) takes the place of a class", """
        broker.failures.class goal.violations.class disk.failures.class metric.anomaly.class
        topic.replication.topic.anomaly.class topic.partition.size.anomaly.class
        broker.failure.detector.class
    """),
    ("partitions are not judged by their size alone", """
        self.healing.partition.size.threshold.mb topic.excluded.from.partition.size.check
    """),
    ("a factor other than intended is changed with propose --replication-factor", """
        topic.replication.factor.margin topic.min.isr.record.retention.time.ms
        replication.factor.self.healing.skip.rack.awareness.check
    """),
    ("there is no topic of maintenance events: drained_brokers in the settings, or propose", """
        self.healing.maintenance.event.enabled maintenance.event.reader.class
        maintenance.event.class maintenance.event.enable.idempotence
        maintenance.event.idempotence.retention.ms maintenance.event.max.idempotence.cache.size
        maintenance.event.stop.ongoing.execution maintenance.event.topic
        maintenance.event.topic.replication.factor maintenance.event.topic.partition.count
        maintenance.event.topic.retention.ms maintenance.plan.expiration.ms
    """),
    ("absence counts from when a controller first sees it, and decisions are kept in memory", """
        failed.brokers.file.path num.cached.recent.anomaly.states
    """),
    ("brokers that no set names are in no set", """
        broker.set.resolver.class broker.set.assignment.policy.class
        replica.to.broker.set.mapping.policy.class
    """),
    ("a rack is what Kafka's broker.rack says", "rack.aware.goal.rack.id.mapper.class"),
    ("counterpoise run --listen HOST:PORT", "webserver.http.port webserver.http.address"),
    ("`users` and `tokens` in the file of run --server-settings; counterpoise server "
     "hash-password makes their entries", """
        webserver.security.enable webserver.security.provider webserver.auth.credentials.file
    """),
    ("`tls` in the file of run --server-settings: a certificate and its key as PEM files", """
        webserver.ssl.enable webserver.ssl.keystore.location webserver.ssl.keystore.password
        webserver.ssl.keystore.type webserver.ssl.key.password
    """),
    ("a proxy that authenticates people, named by `proxy` in the file of run --server-settings", """
        jwt.authentication.provider.url jwt.cookie.name jwt.auth.certificate.location
        jwt.expected.audiences spnego.keytab.file spnego.principal
        spnego.principal.to.local.rules trusted.proxy.services trusted.proxy.services.ip.regex
        trusted.proxy.spnego.fallback.enabled
    """),
    ("`approval: {mode: manual}` in the settings lets nothing start before somebody approves it; "
     "with `reviewers: 2`, two people", """
        two.step.verification.enabled two.step.purgatory.retention.time.ms
        two.step.purgatory.max.requests
    """),
    (_SERVER, """
        webserver.http.cors.enabled webserver.http.cors.origin webserver.http.cors.allowmethods
        webserver.http.cors.exposeheaders webserver.api.urlprefix webserver.ui.diskpath
        webserver.ui.urlprefix webserver.request.maxBlockTimeMs
        webserver.session.maxExpiryTimeMs webserver.session.path webserver.accesslog.enabled
        webserver.accesslog.path webserver.accesslog.retention.days webserver.ssl.protocol
        webserver.ssl.include.ciphers webserver.ssl.exclude.ciphers
        webserver.ssl.include.protocols webserver.ssl.exclude.protocols
        webserver.ssl.sts.enabled webserver.ssl.sts.include.subdomains webserver.ssl.sts.max.age
        vertx.enabled request.reason.required max.active.user.tasks
        max.cached.completed.user.tasks max.cached.completed.kafka.monitor.user.tasks
        max.cached.completed.cruise.control.monitor.user.tasks
        max.cached.completed.kafka.admin.user.tasks
        max.cached.completed.cruise.control.admin.user.tasks
        completed.user.task.retention.time.ms
        completed.kafka.monitor.user.task.retention.time.ms
        completed.cruise.control.monitor.user.task.retention.time.ms
        completed.kafka.admin.user.task.retention.time.ms
        completed.cruise.control.admin.user.task.retention.time.ms
    """),
    ("a setting of the reporter inside the brokers, which stays as it is", """
        cruise.control.metrics.topic cruise.control.metrics.topic.auto.create
        cruise.control.metrics.topic.num.partitions cruise.control.metrics.topic.replication.factor
        cruise.control.metrics.topic.min.insync.replicas
    """),
    ("references like ${env:NAME}, ${file:PATH:KEY} and ${dir:PATH:NAME} work in `client` of the "
     "configuration file; no other provider does", "config.providers"),
)  # fmt: skip
WITHOUT_COUNTERPART = {key: reason for reason, keys in _WITHOUT for key in keys.split()}
# Families of keys without a counterpart.
_FAMILIES = (
    (r"cruise\.control\.metrics\.reporter\..+", "a setting of the reporter inside the brokers, "
     "which stays as it is"),
    (r"config\.providers\..+", WITHOUT_COUNTERPART["config.providers"]),
    (r"zookeeper\.(ssl|client)\S+", WITHOUT_COUNTERPART["zookeeper.connect"]),
    (r"[a-z.]+\.(parameters|request)\.class", "a class of " + _SERVER),
)  # fmt: skip


def why_without(key: str) -> str | None:
    """Why a known key of Cruise Control has no counterpart; None for any other key."""
    found = WITHOUT_COUNTERPART.get(key)
    if found is not None:
        return found
    return next((why for family, why in _FAMILIES if re.fullmatch(family, key)), None)

"""The cpu cost of a byte: recovered if the data determines it, and no claim if not."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from pyspark.sql import SparkSession

from cluster_model import synthetic_snapshot
from cluster_model.history.cpu import TRAFFIC, broker_classes, broker_traffic, fit_cpu
from cluster_model.history.schema import BROKER_WINDOWS, LED, PLACEMENTS

MINUTE = 60_000
TRUE = {1: (4e-6, 1e-6, 2e-6), 2: (1e-6, 0.0, 3e-6)}
TRAFFIC_SCHEMA = "cluster string, broker long, start_ms long, " + ", ".join(
    f"{name} double" for name in TRAFFIC
)


def test_costs_of_each_class_are_found_again_with_their_error(spark: SparkSession) -> None:
    rng = np.random.default_rng(0)
    traffic, reported = [], []
    errors: dict[int, list[float]] = {1: [], 2: []}
    for broker in range(1, 9):
        kind = 1 if broker <= 4 else 2
        for w in range(200):
            x = rng.uniform(1e6, 1e8, 3)
            noise = rng.normal(0, 5.0) if kind == 2 else 0.0
            errors[kind].append(noise)
            traffic.append(("c", broker, w * MINUTE, *x.tolist()))
            reported.append(("c", broker, w * MINUTE, "cpu", float(x @ TRUE[kind]) + noise, 0))
    # Not measured, not cpu, and of a broker that nobody knows.
    reported += [("c", 1, 999 * MINUTE, "cpu", 1e9, 2), ("c", 1, 0, "bytes_in", 1e9, 0)]
    traffic += [("c", 1, 999 * MINUTE, 1.0, 1.0, 1.0), ("c", 77, 0, 1.0, 1.0, 1.0)]
    reported += [("c", 77, 0, "cpu", 1e9, 0)]
    model = fit_cpu(
        spark.createDataFrame(traffic, TRAFFIC_SCHEMA),
        spark.createDataFrame(reported, BROKER_WINDOWS),
        ((1, 2, 3, 4), (5, 6, 7, 8), (9,)),
        MINUTE,
    )
    exact, noisy, unseen = model.classes
    np.testing.assert_allclose(exact.coefficients, TRUE[1], rtol=1e-4)
    assert exact.windows == 800
    assert exact.held_out == 160
    assert exact.r2 > 0.999999
    assert exact.held_out_rmse < 0.01
    np.testing.assert_allclose(noisy.coefficients, TRUE[2], atol=2e-8)
    assert min(noisy.coefficients) >= 0
    np.testing.assert_allclose(noisy.rmse, np.std(errors[2]), rtol=0.05)
    np.testing.assert_allclose(noisy.held_out_rmse, 5.0, rtol=0.2)
    assert 0.99 < noisy.held_out_r2 < noisy.r2 + 0.01 <= 1.01
    # Nothing is known of the third: it pays by the usual weights what all pay on average.
    assert math.isnan(unseen.rmse)
    assert unseen.windows == 0
    np.testing.assert_allclose(
        np.array(unseen.coefficients) / unseen.leader_in, [1, 3 / 14, 3 / 14]
    )
    assert 1e-6 < unseen.leader_in < 1e-5
    assert model.coefficients(np.array([5, 77])).tolist() == [
        list(noisy.coefficients),
        list(model.most.coefficients),
    ]


def test_traffic_that_always_goes_together_is_charged_by_the_usual_weights(
    spark: SparkSession,
) -> None:
    traffic = [
        ("c", b, w * MINUTE, 1e6 * w, 2e6 * w, 1e6 * w) for b in (1, 2) for w in range(1, 40)
    ]
    price = 1e-6
    reported = [
        ("c", b, s, "cpu", price * (0.7 * x + 0.15 * y + 0.15 * z), 0)
        for _, b, s, x, y, z in traffic
    ]
    model = fit_cpu(
        spark.createDataFrame(traffic, TRAFFIC_SCHEMA),
        spark.createDataFrame(reported, BROKER_WINDOWS),
        ((1, 2),),
        MINUTE,
    )
    np.testing.assert_allclose(
        model.classes[0].coefficients, np.array([0.7, 0.15, 0.15]) * price, rtol=1e-6
    )


def test_load_belongs_to_the_broker_that_led_then(spark: SparkSession) -> None:
    placements = spark.createDataFrame(
        [
            ("c", "a", 0, -(2**63), 90_000, [1, 2, 3], 1, None),
            ("c", "a", 0, 90_000, 2**63 - 1, [1, 2, 3], 2, None),
            ("c", "b", 0, -(2**63), 2**63 - 1, [3], 3, None),
        ],
        PLACEMENTS,
    )
    led = spark.createDataFrame(
        [
            ("c", "a", 0, 1, 0, 10.0, 5.0),
            # The leadership changed halfway: of a mean of 20, 5 came while broker 1 led.
            ("c", "a", 0, 1, MINUTE, 5.0, 1.0),
            ("c", "a", 0, 2, MINUTE, 15.0, 3.0),
            ("c", "b", 0, 3, MINUTE, 100.0, 0.0),
        ],
        LED.names,
    )
    found = {
        (r.start_ms, r.broker): (r.leader_in, r.leader_out, r.follower_in)
        for r in broker_traffic(led, placements, MINUTE).collect()
    }
    assert found == {
        (0, 1): (10.0, 25.0, 0.0),
        (0, 2): (0.0, 0.0, 10.0),
        (0, 3): (0.0, 0.0, 10.0),
        (MINUTE, 1): (5.0, 11.0, 15.0),
        (MINUTE, 2): (15.0, 33.0, 5.0),
        (MINUTE, 3): (100.0, 0.0, 20.0),
    }


def test_brokers_of_equal_capacities_are_of_one_class() -> None:
    cluster = synthetic_snapshot(brokers=4, partitions=4, racks=2, replication_factor=2)
    capacity = cluster.capacity.copy()
    capacity[[1, 3], 0] *= 2
    classes = broker_classes(dataclasses.replace(cluster, capacity=capacity))
    assert classes == ((2, 4), (1, 3))

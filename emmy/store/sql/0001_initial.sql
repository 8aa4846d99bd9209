-- Every table: key (digest of what identifies the row) and stamp (time of the append, ns; the latest row of a key stands).
CREATE TABLE sweep (
    key VARCHAR PRIMARY KEY, stamp BIGINT NOT NULL,
    sweep VARCHAR NOT NULL, device VARCHAR NOT NULL, started_ns BIGINT NOT NULL, started_at VARCHAR NOT NULL,
    settings VARCHAR NOT NULL
);

CREATE TABLE region (
    key VARCHAR PRIMARY KEY, stamp BIGINT NOT NULL,
    region VARCHAR NOT NULL, kernel VARCHAR NOT NULL, kind VARCHAR NOT NULL, shape VARCHAR NOT NULL,
    nest VARCHAR NOT NULL, symbols VARCHAR NOT NULL
);

CREATE TABLE variant (
    key VARCHAR PRIMARY KEY, stamp BIGINT NOT NULL,
    region VARCHAR NOT NULL, device VARCHAR NOT NULL, sweep VARCHAR NOT NULL, knobs VARCHAR NOT NULL,
    lane VARCHAR NOT NULL, origin VARCHAR NOT NULL, prior VARCHAR NOT NULL, predicted_us DOUBLE,
    rank BIGINT NOT NULL, offered BIGINT NOT NULL
);

-- Latencies in microseconds; build_s and wall_s in seconds.
CREATE TABLE measurement (
    key VARCHAR PRIMARY KEY, stamp BIGINT NOT NULL,
    region VARCHAR NOT NULL, device VARCHAR NOT NULL, driver VARCHAR NOT NULL, compiler VARCHAR NOT NULL,
    kernel VARCHAR NOT NULL, knobs VARCHAR NOT NULL, lane VARCHAR NOT NULL, regime VARCHAR NOT NULL,
    protocol VARCHAR NOT NULL, plan_digest VARCHAR NOT NULL, sweep VARCHAR NOT NULL, status VARCHAR NOT NULL,
    size VARCHAR NOT NULL, shape VARCHAR NOT NULL,
    median_us DOUBLE, low_us DOUBLE, high_us DOUBLE, samples BIGINT NOT NULL, rel_error DOUBLE,
    build_s DOUBLE NOT NULL, wall_s DOUBLE NOT NULL, error VARCHAR NOT NULL, abandoned BOOLEAN NOT NULL,
    registers BIGINT NOT NULL, spills BIGINT NOT NULL, smem_bytes BIGINT NOT NULL, sm_clock_mhz BIGINT NOT NULL,
    throttle VARCHAR NOT NULL, warnings VARCHAR NOT NULL, measured_at VARCHAR NOT NULL
);

-- rounds: JSON list of microseconds, one a round of an interleaved run.
CREATE TABLE ab (
    key VARCHAR PRIMARY KEY, stamp BIGINT NOT NULL,
    sweep VARCHAR NOT NULL, run VARCHAR NOT NULL, device VARCHAR NOT NULL, region VARCHAR NOT NULL,
    shape VARCHAR NOT NULL, label VARCHAR NOT NULL, origin VARCHAR NOT NULL, lane VARCHAR NOT NULL,
    knobs VARCHAR NOT NULL, protocol VARCHAR NOT NULL, process BIGINT NOT NULL, status VARCHAR NOT NULL,
    rounds VARCHAR NOT NULL, reason VARCHAR NOT NULL, measured_at VARCHAR NOT NULL
);

CREATE TABLE decision (
    key VARCHAR PRIMARY KEY, stamp BIGINT NOT NULL,
    kind VARCHAR NOT NULL, sweep VARCHAR NOT NULL, device VARCHAR NOT NULL, region VARCHAR NOT NULL,
    shape VARCHAR NOT NULL, lane VARCHAR NOT NULL, source VARCHAR NOT NULL, knobs VARCHAR NOT NULL,
    us DOUBLE, reason VARCHAR NOT NULL, payload VARCHAR NOT NULL, decided_at VARCHAR NOT NULL
);

-- SQLAlchemy 2.1.9, postgresql 15

-- counting/compaction.py compact
DELETE FROM billhook.billhook_count WHERE (billhook.billhook_count.hour, billhook.billhook_count.source, billhook.billhook_count.event_type, billhook.billhook_count.handler, billhook.billhook_count.what, billhook.billhook_count.cause, billhook.billhook_count.bucket) IN (SELECT billhook.billhook_count.hour, billhook.billhook_count.source, billhook.billhook_count.event_type, billhook.billhook_count.handler, billhook.billhook_count.what, billhook.billhook_count.cause, billhook.billhook_count.bucket
FROM billhook.billhook_count
WHERE billhook.billhook_count.hour IN (%(hour_1_1)s::TIMESTAMP WITH TIME ZONE) AND (billhook.billhook_count.hour < %(hour_2)s::TIMESTAMP WITH TIME ZONE OR billhook.billhook_count.hour < %(hour_3)s::TIMESTAMP WITH TIME ZONE AND billhook.billhook_count.what != %(what_1)s::VARCHAR)
 LIMIT %(param_1)s::INTEGER FOR UPDATE SKIP LOCKED) RETURNING billhook.billhook_count.hour, billhook.billhook_count.source, billhook.billhook_count.event_type, billhook.billhook_count.handler, billhook.billhook_count.what, billhook.billhook_count.cause, billhook.billhook_count.bucket, billhook.billhook_count.number, billhook.billhook_count.seconds, billhook.billhook_count.last_at
--> billhook_count: billhook_count_pkey

-- counting/compaction.py compact
SELECT DISTINCT billhook.billhook_count.hour
FROM billhook.billhook_count
WHERE billhook.billhook_count.hour > %(hour_1)s::TIMESTAMP WITH TIME ZONE AND (billhook.billhook_count.hour < %(hour_2)s::TIMESTAMP WITH TIME ZONE OR billhook.billhook_count.hour < %(hour_3)s::TIMESTAMP WITH TIME ZONE AND billhook.billhook_count.what != %(what_1)s::VARCHAR)
--> billhook_count: billhook_count_pkey

-- counting/counts.py Counts.write
INSERT INTO billhook.billhook_count (hour, source, event_type, handler, what, cause, bucket, number, seconds, last_at) VALUES (%(hour)s::TIMESTAMP WITH TIME ZONE, %(source)s::VARCHAR, %(event_type)s::VARCHAR, %(handler)s::VARCHAR, %(what)s::VARCHAR, %(cause)s::VARCHAR, %(bucket)s::INTEGER, %(number)s::BIGINT, %(seconds)s, %(last_at)s::TIMESTAMP WITH TIME ZONE) ON CONFLICT (hour, source, event_type, handler, what, cause, bucket) DO UPDATE SET number = (billhook.billhook_count.number + excluded.number), seconds = (billhook.billhook_count.seconds + excluded.seconds), last_at = CASE WHEN (excluded.last_at > billhook.billhook_count.last_at) THEN excluded.last_at ELSE billhook.billhook_count.last_at END

-- counting/counts.py _first_reading
SELECT min(billhook.run.delivery_id) AS min_1
FROM billhook.run
WHERE billhook.run.handler = ANY (%(param_1)s::TEXT[]) AND billhook.run.order_key IS NOT NULL AND billhook.run.state IN ('waiting', 'due', 'running')
--> run: run_order_idx

-- counting/counts.py _first_reading
SELECT min(billhook.run.delivery_id) AS min_1
FROM billhook.run
WHERE billhook.run.handler = ANY (%(param_1)s::TEXT[]) AND billhook.run.state IN ('due', 'running')
--> run: run_claim_idx

-- counting/counts.py _first_reading
WITH RECURSIVE due (handler) AS (
        SELECT (SELECT handler FROM billhook.run WHERE state = 'due' ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM billhook.run WHERE state = 'due' AND run.handler > due.handler
            ORDER BY handler LIMIT 1
        ) FROM due WHERE due.handler IS NOT NULL
    ), running (handler) AS (
        SELECT (SELECT handler FROM billhook.run WHERE state = 'running' ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM billhook.run WHERE state = 'running' AND run.handler > running.handler
            ORDER BY handler LIMIT 1
        ) FROM running WHERE running.handler IS NOT NULL
    ) SELECT handler FROM due UNION SELECT handler FROM running
--> run: run_claim_idx

-- counting/counts.py _newest
SELECT coalesce((SELECT min(billhook.delivery.id) - %(min_1)s::BIGINT AS anon_1
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received') AND billhook.delivery.type_field IS NOT NULL), (SELECT coalesce(max(billhook.delivery.id), %(coalesce_3)s::INTEGER) AS coalesce_2
FROM billhook.delivery)) AS coalesce_1, coalesce((SELECT min(billhook.delivery.id) - %(min_1)s::BIGINT AS anon_1
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received')), (SELECT coalesce(max(billhook.delivery.id), %(coalesce_3)s::INTEGER) AS coalesce_2
FROM billhook.delivery)) AS coalesce_4, (SELECT coalesce(max(billhook.failure.id), %(coalesce_6)s::INTEGER) AS coalesce_5
FROM billhook.failure) AS anon_2
--> delivery: delivery_pkey
--> delivery: delivery_received_idx
--> delivery: delivery_unread_type_idx
--> failure: failure_pkey

-- counting/counts.py _sums
SELECT anon_1.event_type, anon_1.handler, anon_1.what, anon_1.cause, anon_1.bucket, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (SELECT billhook.billhook_count.hour AS hour, billhook.billhook_count.source AS source, billhook.billhook_count.event_type AS event_type, billhook.billhook_count.handler AS handler, billhook.billhook_count.what AS what, billhook.billhook_count.cause AS cause, billhook.billhook_count.bucket AS bucket, billhook.billhook_count.number AS number, billhook.billhook_count.seconds AS seconds, billhook.billhook_count.last_at AS last_at
FROM billhook.billhook_count UNION ALL SELECT anon_2.hour AS hour, anon_2.source AS source, anon_2.event_type AS event_type, anon_2.handler AS handler, anon_2.what AS what, anon_2.cause AS cause, anon_2.bucket AS bucket, anon_2.number AS number, anon_2.seconds AS seconds, anon_2.last_at AS last_at
FROM (
    SELECT date_trunc('hour', received_at, 'UTC') AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id IS NOT NULL AND coalesce(sent_as, event_type) != '' AND id > %(delivery_id)s AND id <= %(to_delivery_id)s
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT date_trunc('hour', received_at, 'UTC'), source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id IS NOT NULL
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > %(quarantined_id)s AND id <= %(to_quarantined_id)s
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT date_trunc('hour', failed_at, 'UTC'), '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM billhook.failure JOIN billhook.run ON run.id = run_id WHERE retried = 1 AND failure.id > %(failure_id)s
        AND failure.id <= %(to_failure_id)s AND delivery_id IS NOT NULL GROUP BY 1, 4, 7
    UNION ALL
    SELECT date_trunc('hour', finished_at, 'UTC'), '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM billhook.run WHERE finished_at >= %(finished_at)s::TIMESTAMP WITH TIME ZONE AND finished_at < %(to_finished_at)s::TIMESTAMP WITH TIME ZONE
        AND delivery_id IS NOT NULL GROUP BY 1, 4, 5, 7
) AS anon_2) AS anon_1
WHERE anon_1.hour >= %(hour_1)s::TIMESTAMP WITH TIME ZONE AND anon_1.what = ANY (%(param_1)s::TEXT[]) GROUP BY anon_1.event_type, anon_1.handler, anon_1.what, anon_1.cause, anon_1.bucket
--> billhook_count: billhook_count_pkey
--> delivery: delivery_failed_idx
--> delivery: delivery_pkey
--> failure: failure_run_id_idx
--> run: run_finished_at_idx
--> run: run_pkey

-- counting/counts.py _sums
SELECT anon_1.hour, anon_1.event_type, anon_1.what, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (SELECT billhook.billhook_count.hour AS hour, billhook.billhook_count.source AS source, billhook.billhook_count.event_type AS event_type, billhook.billhook_count.handler AS handler, billhook.billhook_count.what AS what, billhook.billhook_count.cause AS cause, billhook.billhook_count.bucket AS bucket, billhook.billhook_count.number AS number, billhook.billhook_count.seconds AS seconds, billhook.billhook_count.last_at AS last_at
FROM billhook.billhook_count UNION ALL SELECT anon_2.hour AS hour, anon_2.source AS source, anon_2.event_type AS event_type, anon_2.handler AS handler, anon_2.what AS what, anon_2.cause AS cause, anon_2.bucket AS bucket, anon_2.number AS number, anon_2.seconds AS seconds, anon_2.last_at AS last_at
FROM (
    SELECT date_trunc('hour', received_at, 'UTC') AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id IS NOT NULL AND coalesce(sent_as, event_type) != '' AND id > %(delivery_id)s AND id <= %(to_delivery_id)s
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT date_trunc('hour', received_at, 'UTC'), source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id IS NOT NULL
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > %(quarantined_id)s AND id <= %(to_quarantined_id)s
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT date_trunc('hour', failed_at, 'UTC'), '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM billhook.failure JOIN billhook.run ON run.id = run_id WHERE retried = 1 AND failure.id > %(failure_id)s
        AND failure.id <= %(to_failure_id)s AND delivery_id IS NOT NULL GROUP BY 1, 4, 7
    UNION ALL
    SELECT date_trunc('hour', finished_at, 'UTC'), '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM billhook.run WHERE finished_at >= %(finished_at)s::TIMESTAMP WITH TIME ZONE AND finished_at < %(to_finished_at)s::TIMESTAMP WITH TIME ZONE
        AND delivery_id IS NOT NULL GROUP BY 1, 4, 5, 7
) AS anon_2) AS anon_1
WHERE anon_1.hour >= %(hour_1)s::TIMESTAMP WITH TIME ZONE AND anon_1.what = ANY (%(param_1)s::TEXT[]) GROUP BY anon_1.hour, anon_1.event_type, anon_1.what
--> billhook_count: billhook_count_pkey
--> delivery: delivery_failed_idx
--> delivery: delivery_pkey
--> run: run_finished_at_idx

-- counting/counts.py _sums
SELECT anon_1.hour, anon_1.handler, anon_1.what, anon_1.bucket, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (
    SELECT date_trunc('minute', received_at, 'UTC') AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id IS NOT NULL AND coalesce(sent_as, event_type) != '' AND id > %(delivery_id)s AND id <= %(to_delivery_id)s
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT date_trunc('minute', received_at, 'UTC'), source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id IS NOT NULL
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > %(quarantined_id)s AND id <= %(to_quarantined_id)s
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT date_trunc('minute', failed_at, 'UTC'), '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM billhook.failure JOIN billhook.run ON run.id = run_id WHERE retried = 1 AND failure.id > %(failure_id)s
        AND failure.id <= %(to_failure_id)s AND delivery_id IS NOT NULL GROUP BY 1, 4, 7
    UNION ALL
    SELECT date_trunc('minute', finished_at, 'UTC'), '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM billhook.run WHERE finished_at >= %(finished_at)s::TIMESTAMP WITH TIME ZONE AND finished_at < %(to_finished_at)s::TIMESTAMP WITH TIME ZONE
        AND delivery_id IS NOT NULL GROUP BY 1, 4, 5, 7
) AS anon_1
WHERE anon_1.hour >= %(hour_1)s::TIMESTAMP WITH TIME ZONE AND anon_1.what = ANY (%(param_1)s::TEXT[]) GROUP BY anon_1.hour, anon_1.handler, anon_1.what, anon_1.bucket
--> delivery: delivery_failed_idx
--> delivery: delivery_pkey
--> failure: failure_run_id_idx
--> run: run_finished_at_idx
--> run: run_pkey

-- counting/counts.py _sums
SELECT anon_1.hour, anon_1.handler, anon_1.what, anon_1.bucket, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (SELECT billhook.billhook_count.hour AS hour, billhook.billhook_count.source AS source, billhook.billhook_count.event_type AS event_type, billhook.billhook_count.handler AS handler, billhook.billhook_count.what AS what, billhook.billhook_count.cause AS cause, billhook.billhook_count.bucket AS bucket, billhook.billhook_count.number AS number, billhook.billhook_count.seconds AS seconds, billhook.billhook_count.last_at AS last_at
FROM billhook.billhook_count UNION ALL SELECT anon_2.hour AS hour, anon_2.source AS source, anon_2.event_type AS event_type, anon_2.handler AS handler, anon_2.what AS what, anon_2.cause AS cause, anon_2.bucket AS bucket, anon_2.number AS number, anon_2.seconds AS seconds, anon_2.last_at AS last_at
FROM (
    SELECT date_trunc('hour', received_at, 'UTC') AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id IS NOT NULL AND coalesce(sent_as, event_type) != '' AND id > %(delivery_id)s AND id <= %(to_delivery_id)s
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT date_trunc('hour', received_at, 'UTC'), source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id IS NOT NULL
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > %(quarantined_id)s AND id <= %(to_quarantined_id)s
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT date_trunc('hour', failed_at, 'UTC'), '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM billhook.failure JOIN billhook.run ON run.id = run_id WHERE retried = 1 AND failure.id > %(failure_id)s
        AND failure.id <= %(to_failure_id)s AND delivery_id IS NOT NULL GROUP BY 1, 4, 7
    UNION ALL
    SELECT date_trunc('hour', finished_at, 'UTC'), '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM billhook.run WHERE finished_at >= %(finished_at)s::TIMESTAMP WITH TIME ZONE AND finished_at < %(to_finished_at)s::TIMESTAMP WITH TIME ZONE
        AND delivery_id IS NOT NULL GROUP BY 1, 4, 5, 7
) AS anon_2) AS anon_1
WHERE anon_1.hour >= %(hour_1)s::TIMESTAMP WITH TIME ZONE AND anon_1.what = ANY (%(param_1)s::TEXT[]) GROUP BY anon_1.hour, anon_1.handler, anon_1.what, anon_1.bucket
--> billhook_count: billhook_count_pkey
--> delivery: delivery_failed_idx
--> delivery: delivery_pkey
--> failure: failure_run_id_idx
--> run: run_finished_at_idx
--> run: run_pkey

-- counting/counts.py _sums
SELECT anon_1.hour, anon_1.handler, anon_1.what, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (SELECT billhook.billhook_count.hour AS hour, billhook.billhook_count.source AS source, billhook.billhook_count.event_type AS event_type, billhook.billhook_count.handler AS handler, billhook.billhook_count.what AS what, billhook.billhook_count.cause AS cause, billhook.billhook_count.bucket AS bucket, billhook.billhook_count.number AS number, billhook.billhook_count.seconds AS seconds, billhook.billhook_count.last_at AS last_at
FROM billhook.billhook_count UNION ALL SELECT anon_2.hour AS hour, anon_2.source AS source, anon_2.event_type AS event_type, anon_2.handler AS handler, anon_2.what AS what, anon_2.cause AS cause, anon_2.bucket AS bucket, anon_2.number AS number, anon_2.seconds AS seconds, anon_2.last_at AS last_at
FROM (
    SELECT date_trunc('hour', received_at, 'UTC') AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id IS NOT NULL AND coalesce(sent_as, event_type) != '' AND id > %(delivery_id)s AND id <= %(to_delivery_id)s
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT date_trunc('hour', received_at, 'UTC'), source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id IS NOT NULL
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > %(quarantined_id)s AND id <= %(to_quarantined_id)s
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT date_trunc('hour', failed_at, 'UTC'), '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM billhook.failure JOIN billhook.run ON run.id = run_id WHERE retried = 1 AND failure.id > %(failure_id)s
        AND failure.id <= %(to_failure_id)s AND delivery_id IS NOT NULL GROUP BY 1, 4, 7
    UNION ALL
    SELECT date_trunc('hour', finished_at, 'UTC'), '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM billhook.run WHERE finished_at >= %(finished_at)s::TIMESTAMP WITH TIME ZONE AND finished_at < %(to_finished_at)s::TIMESTAMP WITH TIME ZONE
        AND delivery_id IS NOT NULL GROUP BY 1, 4, 5, 7
) AS anon_2) AS anon_1
WHERE anon_1.hour >= %(hour_1)s::TIMESTAMP WITH TIME ZONE AND anon_1.what = ANY (%(param_1)s::TEXT[]) GROUP BY anon_1.hour, anon_1.handler, anon_1.what
--> billhook_count: billhook_count_pkey
--> delivery: delivery_failed_idx
--> delivery: delivery_pkey
--> run: run_finished_at_idx

-- counting/counts.py _sums
SELECT anon_1.hour, anon_1.source, anon_1.event_type, anon_1.handler, anon_1.what, anon_1.cause, anon_1.bucket, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (
    SELECT date_trunc('hour', received_at, 'UTC') AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id = ANY (%(delivery_ids)s::BIGINT[]) AND coalesce(sent_as, event_type) != '' AND id > %(delivery_id)s AND id <= %(to_delivery_id)s
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT date_trunc('hour', received_at, 'UTC'), source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id = ANY (%(delivery_ids)s::BIGINT[])
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > %(quarantined_id)s AND id <= %(to_quarantined_id)s
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT date_trunc('hour', failed_at, 'UTC'), '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM billhook.failure JOIN billhook.run ON run.id = run_id WHERE retried = 1 AND failure.id > %(failure_id)s
        AND failure.id <= %(to_failure_id)s AND delivery_id = ANY (%(delivery_ids)s::BIGINT[]) GROUP BY 1, 4, 7
    UNION ALL
    SELECT date_trunc('hour', finished_at, 'UTC'), '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM billhook.run WHERE finished_at >= %(finished_at)s::TIMESTAMP WITH TIME ZONE AND finished_at < %(to_finished_at)s::TIMESTAMP WITH TIME ZONE
        AND delivery_id = ANY (%(delivery_ids)s::BIGINT[]) GROUP BY 1, 4, 5, 7

    UNION ALL
    SELECT date_trunc('hour', failed_at, 'UTC'), '', '', '', 'issue', fingerprint, -1, count(*), 0.0,
        max(failed_at)
    FROM billhook.failure JOIN billhook.run ON run.id = run_id WHERE fingerprint IS NOT NULL AND delivery_id = ANY (%(delivery_ids)s::BIGINT[])
    GROUP BY 1, 6
) AS anon_1 GROUP BY anon_1.hour, anon_1.source, anon_1.event_type, anon_1.handler, anon_1.what, anon_1.cause, anon_1.bucket
--> delivery: delivery_failed_idx
--> delivery: delivery_pkey
--> failure: failure_run_id_idx
--> run: run_delivery_id_handler_key
--> run: run_finished_at_idx

-- counting/counts.py _sums
SELECT anon_1.hour, anon_1.source, anon_1.event_type, anon_1.handler, anon_1.what, anon_1.cause, anon_1.bucket, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (
    SELECT date_trunc('hour', received_at, 'UTC') AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id IS NOT NULL AND coalesce(sent_as, event_type) != '' AND id > %(delivery_id)s AND id <= %(to_delivery_id)s
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT date_trunc('hour', received_at, 'UTC'), source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id IS NOT NULL
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > %(quarantined_id)s AND id <= %(to_quarantined_id)s
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT date_trunc('hour', failed_at, 'UTC'), '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM billhook.failure JOIN billhook.run ON run.id = run_id WHERE retried = 1 AND failure.id > %(failure_id)s
        AND failure.id <= %(to_failure_id)s AND delivery_id IS NOT NULL GROUP BY 1, 4, 7
    UNION ALL
    SELECT date_trunc('hour', finished_at, 'UTC'), '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM billhook.run WHERE finished_at >= %(finished_at)s::TIMESTAMP WITH TIME ZONE AND finished_at < %(to_finished_at)s::TIMESTAMP WITH TIME ZONE
        AND delivery_id IS NOT NULL GROUP BY 1, 4, 5, 7
) AS anon_1 GROUP BY anon_1.hour, anon_1.source, anon_1.event_type, anon_1.handler, anon_1.what, anon_1.cause, anon_1.bucket
--> delivery: delivery_failed_idx
--> delivery: delivery_pkey
--> failure: failure_run_id_idx
--> run: run_finished_at_idx
--> run: run_pkey

-- counting/counts.py _sums
SELECT anon_1.hour, anon_1.source, anon_1.what, anon_1.cause, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (SELECT billhook.billhook_count.hour AS hour, billhook.billhook_count.source AS source, billhook.billhook_count.event_type AS event_type, billhook.billhook_count.handler AS handler, billhook.billhook_count.what AS what, billhook.billhook_count.cause AS cause, billhook.billhook_count.bucket AS bucket, billhook.billhook_count.number AS number, billhook.billhook_count.seconds AS seconds, billhook.billhook_count.last_at AS last_at
FROM billhook.billhook_count UNION ALL SELECT anon_2.hour AS hour, anon_2.source AS source, anon_2.event_type AS event_type, anon_2.handler AS handler, anon_2.what AS what, anon_2.cause AS cause, anon_2.bucket AS bucket, anon_2.number AS number, anon_2.seconds AS seconds, anon_2.last_at AS last_at
FROM (
    SELECT date_trunc('hour', received_at, 'UTC') AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id IS NOT NULL AND coalesce(sent_as, event_type) != '' AND id > %(delivery_id)s AND id <= %(to_delivery_id)s
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT date_trunc('hour', received_at, 'UTC'), source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id IS NOT NULL
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > %(quarantined_id)s AND id <= %(to_quarantined_id)s
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT date_trunc('hour', failed_at, 'UTC'), '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM billhook.failure JOIN billhook.run ON run.id = run_id WHERE retried = 1 AND failure.id > %(failure_id)s
        AND failure.id <= %(to_failure_id)s AND delivery_id IS NOT NULL GROUP BY 1, 4, 7
    UNION ALL
    SELECT date_trunc('hour', finished_at, 'UTC'), '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM billhook.run WHERE finished_at >= %(finished_at)s::TIMESTAMP WITH TIME ZONE AND finished_at < %(to_finished_at)s::TIMESTAMP WITH TIME ZONE
        AND delivery_id IS NOT NULL GROUP BY 1, 4, 5, 7
) AS anon_2) AS anon_1
WHERE anon_1.hour >= %(hour_1)s::TIMESTAMP WITH TIME ZONE AND anon_1.what = ANY (%(param_1)s::TEXT[]) GROUP BY anon_1.hour, anon_1.source, anon_1.what, anon_1.cause
--> billhook_count: billhook_count_pkey
--> delivery: delivery_failed_idx
--> delivery: delivery_pkey
--> run: run_finished_at_idx

-- counting/counts.py _sums
SELECT anon_1.source, anon_1.event_type, anon_1.handler, anon_1.what, anon_1.cause, anon_1.bucket, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (SELECT billhook.billhook_count.hour AS hour, billhook.billhook_count.source AS source, billhook.billhook_count.event_type AS event_type, billhook.billhook_count.handler AS handler, billhook.billhook_count.what AS what, billhook.billhook_count.cause AS cause, billhook.billhook_count.bucket AS bucket, billhook.billhook_count.number AS number, billhook.billhook_count.seconds AS seconds, billhook.billhook_count.last_at AS last_at
FROM billhook.billhook_count UNION ALL SELECT anon_2.hour AS hour, anon_2.source AS source, anon_2.event_type AS event_type, anon_2.handler AS handler, anon_2.what AS what, anon_2.cause AS cause, anon_2.bucket AS bucket, anon_2.number AS number, anon_2.seconds AS seconds, anon_2.last_at AS last_at
FROM (
    SELECT date_trunc('hour', received_at, 'UTC') AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id IS NOT NULL AND coalesce(sent_as, event_type) != '' AND id > %(delivery_id)s AND id <= %(to_delivery_id)s
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT date_trunc('hour', received_at, 'UTC'), source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id IS NOT NULL
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > %(quarantined_id)s AND id <= %(to_quarantined_id)s
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT date_trunc('hour', failed_at, 'UTC'), '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM billhook.failure JOIN billhook.run ON run.id = run_id WHERE retried = 1 AND failure.id > %(failure_id)s
        AND failure.id <= %(to_failure_id)s AND delivery_id IS NOT NULL GROUP BY 1, 4, 7
    UNION ALL
    SELECT date_trunc('hour', finished_at, 'UTC'), '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM billhook.run WHERE finished_at >= %(finished_at)s::TIMESTAMP WITH TIME ZONE AND finished_at < %(to_finished_at)s::TIMESTAMP WITH TIME ZONE
        AND delivery_id IS NOT NULL GROUP BY 1, 4, 5, 7
) AS anon_2) AS anon_1
WHERE anon_1.hour >= %(hour_1)s::TIMESTAMP WITH TIME ZONE AND anon_1.what = ANY (%(param_1)s::TEXT[]) GROUP BY anon_1.source, anon_1.event_type, anon_1.handler, anon_1.what, anon_1.cause, anon_1.bucket
--> billhook_count: billhook_count_pkey
--> delivery: delivery_failed_idx
--> delivery: delivery_pkey
--> failure: failure_run_id_idx
--> run: run_finished_at_idx
--> run: run_pkey

-- counting/counts.py _sums
SELECT anon_1.what, anon_1.cause, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (SELECT billhook.billhook_count.hour AS hour, billhook.billhook_count.source AS source, billhook.billhook_count.event_type AS event_type, billhook.billhook_count.handler AS handler, billhook.billhook_count.what AS what, billhook.billhook_count.cause AS cause, billhook.billhook_count.bucket AS bucket, billhook.billhook_count.number AS number, billhook.billhook_count.seconds AS seconds, billhook.billhook_count.last_at AS last_at
FROM billhook.billhook_count UNION ALL SELECT anon_2.hour AS hour, anon_2.source AS source, anon_2.event_type AS event_type, anon_2.handler AS handler, anon_2.what AS what, anon_2.cause AS cause, anon_2.bucket AS bucket, anon_2.number AS number, anon_2.seconds AS seconds, anon_2.last_at AS last_at
FROM (
    SELECT date_trunc('hour', received_at, 'UTC') AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id IS NOT NULL AND coalesce(sent_as, event_type) != '' AND id > %(delivery_id)s AND id <= %(to_delivery_id)s
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT date_trunc('hour', received_at, 'UTC'), source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM billhook.delivery WHERE conflict_of IS NULL AND id IS NOT NULL
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > %(quarantined_id)s AND id <= %(to_quarantined_id)s
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT date_trunc('hour', failed_at, 'UTC'), '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM billhook.failure JOIN billhook.run ON run.id = run_id WHERE retried = 1 AND failure.id > %(failure_id)s
        AND failure.id <= %(to_failure_id)s AND delivery_id IS NOT NULL GROUP BY 1, 4, 7
    UNION ALL
    SELECT date_trunc('hour', finished_at, 'UTC'), '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM billhook.run WHERE finished_at >= %(finished_at)s::TIMESTAMP WITH TIME ZONE AND finished_at < %(to_finished_at)s::TIMESTAMP WITH TIME ZONE
        AND delivery_id IS NOT NULL GROUP BY 1, 4, 5, 7
) AS anon_2) AS anon_1
WHERE anon_1.hour >= %(hour_1)s::TIMESTAMP WITH TIME ZONE AND anon_1.what = ANY (%(param_1)s::TEXT[]) GROUP BY anon_1.what, anon_1.cause
--> billhook_count: billhook_count_pkey
--> delivery: delivery_failed_idx
--> delivery: delivery_pkey
--> run: run_finished_at_idx

-- counting/counts.py _watermark
SELECT billhook.billhook_watermark.finished_at, billhook.billhook_watermark.delivery_id, billhook.billhook_watermark.quarantined_id, billhook.billhook_watermark.failure_id
FROM billhook.billhook_watermark
--> billhook_watermark: all rows

-- counting/counts.py _watermark_at
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.received_at < %(received_at_1)s::TIMESTAMP WITH TIME ZONE OR billhook.delivery.id <= (SELECT max(billhook.delivery.id) AS max_1
FROM billhook.delivery) - %(param_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_2)s::INTEGER
--> delivery: delivery_pkey

-- counting/counts.py _watermark_at
SELECT billhook.failure.id
FROM billhook.failure
WHERE billhook.failure.failed_at < %(failed_at_1)s::TIMESTAMP WITH TIME ZONE OR billhook.failure.id <= (SELECT max(billhook.failure.id) AS max_1
FROM billhook.failure) - %(param_1)s::BIGINT ORDER BY billhook.failure.id DESC
 LIMIT %(param_2)s::INTEGER
--> failure: failure_pkey

-- counting/counts.py _watermark_at
SELECT billhook.run.finished_at
FROM billhook.run
WHERE billhook.run.finished_at >= %(finished_at_1)s::TIMESTAMP WITH TIME ZONE ORDER BY billhook.run.finished_at DESC
 LIMIT %(param_1)s::INTEGER OFFSET %(param_2)s::INTEGER
--> run: run_finished_at_idx

-- counting/counts.py advance
SELECT billhook.run.finished_at
FROM billhook.run
WHERE billhook.run.finished_at > %(finished_at_1)s::TIMESTAMP WITH TIME ZONE AND billhook.run.finished_at < %(finished_at_2)s::TIMESTAMP WITH TIME ZONE ORDER BY billhook.run.finished_at
 LIMIT %(param_1)s::INTEGER OFFSET %(param_2)s::INTEGER
--> run: run_finished_at_idx

-- counting/counts.py advance
UPDATE billhook.billhook_watermark SET finished_at=%(finished_at)s::TIMESTAMP WITH TIME ZONE, delivery_id=%(delivery_id)s::BIGINT, quarantined_id=%(quarantined_id)s::BIGINT, failure_id=%(failure_id)s::BIGINT
--> billhook_watermark: all rows

-- counting/counts.py keeping
UPDATE billhook.billhook_watermark SET delivery_id=(SELECT coalesce(max(billhook.delivery.id), %(coalesce_2)s::INTEGER) AS coalesce_1
FROM billhook.delivery) WHERE billhook.billhook_watermark.delivery_id > (SELECT coalesce(max(billhook.delivery.id), %(coalesce_2)s::INTEGER) AS coalesce_1
FROM billhook.delivery)
--> billhook_watermark: all rows
--> delivery: delivery_pkey

-- counting/counts.py keeping
UPDATE billhook.billhook_watermark SET quarantined_id=(SELECT coalesce(max(billhook.delivery.id), %(coalesce_2)s::INTEGER) AS coalesce_1
FROM billhook.delivery) WHERE billhook.billhook_watermark.quarantined_id > (SELECT coalesce(max(billhook.delivery.id), %(coalesce_2)s::INTEGER) AS coalesce_1
FROM billhook.delivery)
--> billhook_watermark: all rows
--> delivery: delivery_pkey

-- counting/counts.py keeping
-- running/readings.py forget_failures
UPDATE billhook.billhook_watermark SET failure_id=(SELECT coalesce(max(billhook.failure.id), %(coalesce_2)s::INTEGER) AS coalesce_1
FROM billhook.failure) WHERE billhook.billhook_watermark.failure_id > (SELECT coalesce(max(billhook.failure.id), %(coalesce_2)s::INTEGER) AS coalesce_1
FROM billhook.failure)
--> billhook_watermark: all rows
--> failure: failure_pkey

-- counting/counts.py note
SELECT billhook.run.id
FROM billhook.run
WHERE billhook.run.finished_at >= %(finished_at_1)s::TIMESTAMP WITH TIME ZONE ORDER BY billhook.run.finished_at
 LIMIT %(param_1)s::INTEGER
--> run: run_finished_at_idx

-- counting/counts.py note
SELECT now() AS now_1

-- counting/counts.py note
SELECT virtualtransaction FROM pg_locks WHERE mode IN ('RowShareLock', 'RowExclusiveLock') AND relation = ANY (CAST(%(tables)s AS regclass[])) AND database = (SELECT oid FROM pg_database WHERE datname = current_database())

-- counting/crashes.py read_crashes
SELECT billhook.billhook_count.handler, billhook.billhook_count.cause, billhook.billhook_count.number, billhook.billhook_count.last_at
FROM billhook.billhook_count
WHERE billhook.billhook_count.hour >= %(hour_1)s::TIMESTAMP WITH TIME ZONE AND billhook.billhook_count.what = %(what_1)s::VARCHAR ORDER BY billhook.billhook_count.last_at
--> billhook_count: billhook_count_pkey

-- counting/retention.py cut_texts
SELECT billhook.billhook_issue.fingerprint, billhook.billhook_issue.title, billhook.billhook_issue.kind
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.fingerprint = ANY (%(param_1)s::TEXT[]) AND NOT (EXISTS (SELECT *
FROM billhook.failure
WHERE billhook.failure.fingerprint = billhook.billhook_issue.fingerprint)) ORDER BY billhook.billhook_issue.fingerprint
--> billhook_issue: billhook_issue_pkey
--> failure: failure_fingerprint_idx

-- counting/retention.py cut_texts
SELECT billhook.billhook_issue.fingerprint, billhook.billhook_issue.title, billhook.billhook_issue.kind
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.fingerprint = ANY (%(param_1)s::TEXT[]) ORDER BY billhook.billhook_issue.fingerprint
--> billhook_issue: billhook_issue_pkey

-- counting/retention.py cut_texts
SELECT billhook.billhook_issue.fingerprint, billhook.billhook_issue.title, billhook.billhook_issue.kind
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.kind = %(kind_1)s::VARCHAR AND billhook.billhook_issue.subject = ANY (%(param_1)s::TEXT[]) ORDER BY billhook.billhook_issue.fingerprint
--> billhook_issue: billhook_issue_pkey

-- counting/retention.py cut_texts
UPDATE billhook.billhook_issue SET title=%(title)s::VARCHAR, why=%(why)s::VARCHAR WHERE billhook.billhook_issue.fingerprint = %(fingerprint_1)s::VARCHAR
--> billhook_issue: billhook_issue_pkey

-- counting/retention.py find
SELECT billhook.delivery.id, billhook.delivery.state, billhook.delivery.received_at, billhook.delivery.signed_at, billhook.delivery.event_type
FROM billhook.delivery
WHERE billhook.delivery.id > %(id_1)s::BIGINT ORDER BY billhook.delivery.id
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey

-- counting/retention.py prune
DELETE FROM billhook.delivery WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[])
--> delivery: delivery_pkey

-- counting/retention.py prune
DELETE FROM billhook.run WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[])
--> run: run_delivery_id_handler_key

-- counting/retention.py prune
SELECT DISTINCT billhook.delivery.event_type
FROM billhook.delivery
WHERE billhook.delivery.state IN ('dead', 'quarantined') AND billhook.delivery.state = %(state_1)s::VARCHAR AND billhook.delivery.event_type = ANY (%(param_1)s::TEXT[])
--> delivery: delivery_failed_idx

-- counting/retention.py prune
SELECT DISTINCT billhook.failure.fingerprint
FROM billhook.failure JOIN billhook.run ON billhook.run.id = billhook.failure.run_id
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[])
--> failure: failure_run_id_idx
--> run: run_pkey

-- counting/retention.py prune
SELECT billhook.delivery.id, billhook.delivery.state, billhook.delivery.received_at, billhook.delivery.signed_at, billhook.delivery.event_type
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state IN ('done', 'dead', 'quarantined', 'pruned', 'erased') AND NOT (EXISTS (SELECT *
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id AND billhook.run.state IN ('waiting', 'due', 'running'))) ORDER BY billhook.delivery.id FOR UPDATE OF delivery SKIP LOCKED
--> delivery: delivery_pkey
--> run: run_delivery_id_handler_key

-- counting/retention.py prune
UPDATE billhook.delivery SET also_sent_as=%(also_sent_as)s::VARCHAR, headers=%(headers)s::VARCHAR, state=%(state)s::VARCHAR, error=%(error)s::VARCHAR, identifier_1=%(identifier_1)s::VARCHAR, identifier_2=%(identifier_2)s::VARCHAR, identifier_3=%(identifier_3)s::VARCHAR, body=%(body)s WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[])
--> delivery: delivery_pkey

-- counting/unconsumed.py read_unconsumed
SELECT DISTINCT billhook.billhook_count.handler
FROM billhook.billhook_count
WHERE billhook.billhook_count.what = %(what_1)s::VARCHAR AND billhook.billhook_count.hour >= %(hour_1)s::TIMESTAMP WITH TIME ZONE AND billhook.billhook_count.last_at >= %(last_at_1)s::TIMESTAMP WITH TIME ZONE ORDER BY billhook.billhook_count.handler
--> billhook_count: billhook_count_pkey

-- inbox.py Inbox._commit_nothing
UPDATE billhook.billhook_version SET version_num=billhook.billhook_version.version_num
--> billhook_version: all rows

-- operating/actions.py ActionRecorder.add
UPDATE billhook.billhook_action SET which=%(which)s::VARCHAR, deliveries=%(deliveries)s::INTEGER WHERE billhook.billhook_action.id = %(id_1)s::BIGINT
--> billhook_action: billhook_action_pkey

-- operating/actions.py issues_acted_on
SELECT billhook.billhook_issue.fingerprint, billhook.billhook_issue.title
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.fingerprint = ANY (%(param_1)s::TEXT[])
--> billhook_issue: billhook_issue_pkey

-- operating/actions.py list_actions
SELECT billhook.billhook_action.id, billhook.billhook_action.at, billhook.billhook_action.who, billhook.billhook_action.what, billhook.billhook_action.which, billhook.billhook_action.deliveries
FROM billhook.billhook_action
WHERE billhook.billhook_action.id < %(id_1)s::BIGINT AND billhook.billhook_action.at >= %(at_1)s::TIMESTAMP WITH TIME ZONE ORDER BY billhook.billhook_action.id DESC
 LIMIT %(param_1)s::INTEGER
--> billhook_action: billhook_action_pkey

-- operating/actions.py prune_actions
DELETE FROM billhook.billhook_action WHERE billhook.billhook_action.at < %(at_1)s::TIMESTAMP WITH TIME ZONE
--> billhook_action: all rows

-- operating/actions.py recorded
INSERT INTO billhook.billhook_action (at, who, what, which) VALUES (%(at)s::TIMESTAMP WITH TIME ZONE, %(who)s::VARCHAR, %(what)s::VARCHAR, %(which)s::VARCHAR) RETURNING billhook.billhook_action.id

-- operating/batches.py change_states
UPDATE billhook.delivery SET also_sent_as=%(also_sent_as)s::VARCHAR, headers=%(headers)s::VARCHAR, state=%(state)s::VARCHAR, error=%(error)s::VARCHAR, digest=%(digest)s, identifier_1=%(identifier_1)s::VARCHAR, identifier_2=%(identifier_2)s::VARCHAR, identifier_3=%(identifier_3)s::VARCHAR, body=%(body)s WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state IN ('done')
--> delivery: delivery_pkey

-- operating/batches.py change_states
UPDATE billhook.delivery SET also_sent_as=%(also_sent_as)s::VARCHAR, state=%(state)s::VARCHAR, error=%(error)s::VARCHAR WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state IN ('dead')
--> delivery: delivery_failed_idx

-- operating/batches.py change_states
UPDATE billhook.delivery SET also_sent_as=%(also_sent_as)s::VARCHAR, state=%(state)s::VARCHAR, error=%(error)s::VARCHAR WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state IN ('done')
--> delivery: delivery_pkey

-- operating/batches.py change_states
UPDATE billhook.delivery SET also_sent_as=%(also_sent_as)s::VARCHAR, state=%(state)s::VARCHAR, error=%(error)s::VARCHAR WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state IN ('done', 'quarantined')
--> delivery: delivery_pkey

-- operating/batches.py change_states
UPDATE billhook.delivery SET also_sent_as=%(also_sent_as)s::VARCHAR, state=%(state)s::VARCHAR, error=%(error)s::VARCHAR WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state IN ('received')
--> delivery: delivery_received_idx

-- operating/batches.py change_states
UPDATE billhook.delivery SET event_type=%(event_type)s::VARCHAR, sent_as=coalesce(billhook.delivery.sent_as, billhook.delivery.event_type), also_sent_as=%(also_sent_as)s::VARCHAR, state=%(state)s::VARCHAR, error=%(error)s::VARCHAR WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state IN ('quarantined')
--> delivery: delivery_failed_idx

-- operating/batches.py states_of
SELECT billhook.delivery.id, billhook.delivery.state
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state IN ('done', 'dead', 'quarantined')
--> delivery: delivery_pkey

-- operating/batches.py states_of
SELECT billhook.delivery.id, billhook.delivery.state
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state IN ('planned', 'done', 'dead')
--> delivery: delivery_pkey

-- operating/batches.py states_of
SELECT billhook.delivery.id, billhook.delivery.state
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state IN ('planned', 'done', 'dead', 'quarantined')
--> delivery: delivery_pkey

-- operating/batches.py states_of
SELECT billhook.delivery.id, billhook.delivery.state
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state IN ('planned', 'done', 'dead', 'quarantined') AND (billhook.delivery.event_type != %(event_type_1)s::VARCHAR OR billhook.delivery.type_field IS NOT NULL)
--> delivery: delivery_pkey

-- operating/batches.py states_of
SELECT billhook.delivery.id, billhook.delivery.state
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state IN ('planned', 'done', 'dead', 'quarantined') AND billhook.delivery.event_type = %(event_type_1)s::VARCHAR AND billhook.delivery.conflict_of IS NULL
--> delivery: delivery_event_type_id_idx

-- operating/batches.py states_of
SELECT billhook.delivery.id, billhook.delivery.state
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state IN ('received', 'planned')
--> delivery: delivery_unfinished_idx

-- operating/batches.py states_of
SELECT billhook.delivery.id, billhook.delivery.state
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state IN ('received', 'quarantined', 'planned', 'dead')
--> delivery: delivery_pkey

-- operating/holds.py hold_worker
UPDATE billhook.billhook_worker SET held_at=%(held_at)s::TIMESTAMP WITH TIME ZONE, held_why=%(held_why)s::VARCHAR WHERE billhook.billhook_worker.owner = %(owner_1)s::VARCHAR AND billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.held_at IS NULL
--> billhook_worker: billhook_worker_pkey

-- operating/holds.py hold_worker
UPDATE billhook.billhook_worker SET held_why=%(held_why)s::VARCHAR WHERE billhook.billhook_worker.owner = %(owner_1)s::VARCHAR AND billhook.billhook_worker.stopped_at IS NULL
--> billhook_worker: billhook_worker_pkey

-- operating/holds.py resume_worker
UPDATE billhook.billhook_worker SET held_at=%(held_at)s::TIMESTAMP WITH TIME ZONE, held_why=%(held_why)s::VARCHAR WHERE billhook.billhook_worker.owner = %(owner_1)s::VARCHAR AND billhook.billhook_worker.held_at IS NOT NULL
--> billhook_worker: billhook_worker_pkey

-- operating/operations.py _discard
DELETE FROM billhook.run WHERE billhook.run.id = ANY (%(param_1)s::BIGINT[])
--> run: run_alone_idx

-- operating/operations.py _discard
SELECT billhook.run.id, billhook.run.delivery_id, billhook.run.state, billhook.run.handler, billhook.run.order_key, billhook.run.newest_only
FROM billhook.run
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[]) AND billhook.run.state IN ('waiting', 'due', 'running', 'dead') ORDER BY billhook.run.id
--> run: run_delivery_id_handler_key

-- operating/operations.py _discard
UPDATE billhook.run SET state=%(state)s::VARCHAR, queued=%(queued)s::INTEGER, token=(billhook.run.token + %(token_1)s::INTEGER), last_error=%(last_error)s::VARCHAR, finished_at=%(finished_at)s::TIMESTAMP WITH TIME ZONE, beside_others=%(beside_others)s::INTEGER, duration_seconds=%(duration_seconds)s WHERE billhook.run.id = ANY (%(param_1)s::BIGINT[]) AND billhook.run.state IN ('waiting', 'due', 'running', 'dead')
--> run: run_pkey

-- operating/operations.py _first_plans
SELECT billhook.delivery.id, billhook.delivery.event_type
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) ORDER BY billhook.delivery.id
--> delivery: delivery_pkey

-- operating/operations.py _first_runs
-- operating/takeover.py take_over
SELECT billhook.delivery.id, billhook.delivery.source, billhook.delivery.key, billhook.delivery.event_type, billhook.delivery.body, billhook.delivery.headers, billhook.delivery.signed_at, billhook.delivery.received_at, billhook.delivery.variant, billhook.delivery.sent_as, billhook.delivery.type_field
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) ORDER BY billhook.delivery.id
--> delivery: delivery_pkey

-- operating/operations.py _ids_of
SELECT billhook.run.id
FROM billhook.run
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[]) AND billhook.run.handler = ANY (%(param_2)s::TEXT[])
--> run: run_delivery_id_handler_key

-- operating/operations.py _make_due
UPDATE billhook.run SET due_at=%(moment)s::TIMESTAMP WITH TIME ZONE WHERE billhook.run.id = %(run_id)s::BIGINT
--> run: run_pkey

-- operating/operations.py _make_due
UPDATE billhook.run SET state=CASE WHEN (billhook.run.order_key IS NOT NULL AND billhook.run.state != %(state_1)s::VARCHAR) THEN %(param_1)s::VARCHAR ELSE %(param_2)s::VARCHAR END, attempts=%(attempts)s::INTEGER, due_at=%(due_at)s::TIMESTAMP WITH TIME ZONE, not_before=%(not_before)s::TIMESTAMP WITH TIME ZONE, queued=%(queued)s::INTEGER, token=(billhook.run.token + %(token_1)s::INTEGER), finished_at=%(finished_at)s::TIMESTAMP WITH TIME ZONE, runs_alone=%(runs_alone)s::INTEGER, beside_others=%(beside_others)s::INTEGER, uncounted_attempts=%(uncounted_attempts)s::INTEGER, postponements=%(postponements)s::INTEGER, replays=(billhook.run.replays + CASE WHEN (billhook.run.state = %(state_1)s::VARCHAR) THEN %(param_3)s::INTEGER ELSE %(param_4)s::INTEGER END) WHERE billhook.run.id = ANY (%(param_5)s::BIGINT[]) AND billhook.run.state IN (%(state_2_1)s::VARCHAR, %(state_2_2)s::VARCHAR)
--> run: run_pkey

-- operating/operations.py _make_due
UPDATE billhook.run SET state=CASE WHEN (billhook.run.order_key IS NOT NULL AND billhook.run.state != %(state_1)s::VARCHAR) THEN %(param_1)s::VARCHAR ELSE %(param_2)s::VARCHAR END, attempts=%(attempts)s::INTEGER, due_at=%(due_at)s::TIMESTAMP WITH TIME ZONE, not_before=%(not_before)s::TIMESTAMP WITH TIME ZONE, queued=%(queued)s::INTEGER, token=(billhook.run.token + %(token_1)s::INTEGER), finished_at=%(finished_at)s::TIMESTAMP WITH TIME ZONE, runs_alone=%(runs_alone)s::INTEGER, beside_others=%(beside_others)s::INTEGER, uncounted_attempts=%(uncounted_attempts)s::INTEGER, postponements=%(postponements)s::INTEGER, replays=(billhook.run.replays + CASE WHEN (billhook.run.state = %(state_1)s::VARCHAR) THEN %(param_3)s::INTEGER ELSE %(param_4)s::INTEGER END) WHERE billhook.run.id = ANY (%(param_5)s::BIGINT[]) AND billhook.run.state IN (NULL) AND (1 != 1)

-- operating/operations.py _to_read_anew
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND NOT (EXISTS (SELECT *
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id))
--> delivery: delivery_pkey
--> run: run_delivery_id_handler_key

-- operating/operations.py _without_missing
SELECT billhook.delivery.id, billhook.delivery.event_type
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[])
--> delivery: delivery_pkey

-- operating/operations.py _without_run
SELECT billhook.run.delivery_id, billhook.run.handler
FROM billhook.run
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[])
--> run: run_delivery_id_handler_key

-- operating/operations.py erase
DELETE FROM billhook.failure WHERE billhook.failure.run_id IN (SELECT billhook.run.id
FROM billhook.run
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[]))
--> failure: failure_run_id_idx
--> run: run_pkey

-- operating/operations.py erase
SELECT billhook.failure.error
FROM billhook.failure
WHERE billhook.failure.run_id IN (SELECT billhook.run.id
FROM billhook.run
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[]))
--> failure: failure_run_id_idx
--> run: run_pkey

-- operating/operations.py erase
UPDATE billhook.run SET last_error=%(last_error)s::VARCHAR, order_key=%(order_key)s::VARCHAR, newest_key=%(newest_key)s::VARCHAR, identity=%(identity)s::VARCHAR WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[])
--> run: run_delivery_id_handler_key

-- operating/operations.py replay
SELECT billhook.run.id, billhook.run.delivery_id, billhook.run.state, billhook.run.handler, billhook.run.order_key, billhook.run.newest_only
FROM billhook.run
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[]) AND (billhook.run.state = %(state_1)s::VARCHAR OR billhook.run.state = %(state_2)s::VARCHAR AND billhook.run.attempts > %(attempts_1)s::INTEGER) ORDER BY billhook.run.id
--> run: run_delivery_id_handler_key

-- operating/operations.py replay
SELECT billhook.run.id, billhook.run.delivery_id, billhook.run.state, billhook.run.handler, billhook.run.order_key, billhook.run.newest_only
FROM billhook.run
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[]) AND (billhook.run.state IN ('succeeded', 'discarded', 'dead') OR billhook.run.state = %(state_1)s::VARCHAR AND billhook.run.attempts > %(attempts_1)s::INTEGER) ORDER BY billhook.run.id
--> run: run_delivery_id_handler_key

-- operating/operations.py replay
SELECT billhook.run.id, billhook.run.delivery_id, billhook.run.state, billhook.run.handler, billhook.run.order_key, billhook.run.newest_only
FROM billhook.run
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[]) AND billhook.run.handler IN (SELECT %(param_2)s::VARCHAR AS anon_1 UNION SELECT coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_2)s::VARCHAR), %(param_2)s::VARCHAR) AS coalesce_1 UNION SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.renamed_to = coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_2)s::VARCHAR), %(param_2)s::VARCHAR)) AND (billhook.run.state = %(state_1)s::VARCHAR OR billhook.run.state = %(state_2)s::VARCHAR AND billhook.run.attempts > %(attempts_1)s::INTEGER) AND (billhook.run.state IN ('due', 'running') AND billhook.run.state = %(state_3)s::VARCHAR AND billhook.run.attempts > %(attempts_2)s::INTEGER AND (EXISTS (SELECT *
FROM billhook.failure
WHERE billhook.failure.run_id = billhook.run.id AND billhook.failure.failed_at >= %(failed_at_1)s::TIMESTAMP WITH TIME ZONE)) OR billhook.run.state IN ('dead') AND ((EXISTS (SELECT *
FROM billhook.failure
WHERE billhook.failure.run_id = billhook.run.id AND billhook.failure.failed_at >= %(failed_at_1)s::TIMESTAMP WITH TIME ZONE)) OR billhook.run.finished_at >= %(finished_at_1)s::TIMESTAMP WITH TIME ZONE)) ORDER BY billhook.run.id
--> billhook_handler: all rows
--> billhook_handler: billhook_handler_name_key
--> failure: failure_failed_at_idx
--> run: run_pkey

-- operating/operations.py replay
SELECT billhook.run.id, billhook.run.delivery_id, billhook.run.state, billhook.run.handler, billhook.run.order_key, billhook.run.newest_only
FROM billhook.run
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[]) AND billhook.run.handler IN (SELECT %(param_2)s::VARCHAR AS anon_1 UNION SELECT coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_2)s::VARCHAR), %(param_2)s::VARCHAR) AS coalesce_1 UNION SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.renamed_to = coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_2)s::VARCHAR), %(param_2)s::VARCHAR)) AND (billhook.run.state = %(state_1)s::VARCHAR OR billhook.run.state = %(state_2)s::VARCHAR AND billhook.run.attempts > %(attempts_1)s::INTEGER) ORDER BY billhook.run.id
--> billhook_handler: all rows
--> billhook_handler: billhook_handler_name_key
--> run: run_pkey

-- operating/operations.py replay
SELECT billhook.run.id, billhook.run.delivery_id, billhook.run.state, billhook.run.handler, billhook.run.order_key, billhook.run.newest_only
FROM billhook.run
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[]) AND billhook.run.handler IN (SELECT %(param_2)s::VARCHAR AS anon_1 UNION SELECT coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_2)s::VARCHAR), %(param_2)s::VARCHAR) AS coalesce_1 UNION SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.renamed_to = coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_2)s::VARCHAR), %(param_2)s::VARCHAR)) AND (billhook.run.state IN ('succeeded', 'discarded', 'dead') OR billhook.run.state = %(state_1)s::VARCHAR AND billhook.run.attempts > %(attempts_1)s::INTEGER) ORDER BY billhook.run.id
--> billhook_handler: all rows
--> billhook_handler: billhook_handler_name_key
--> run: run_pkey

-- operating/operations.py store_edited
INSERT INTO billhook.delivery (source, key, event_type, sent_as, edited_from, headers, state, received_at, digest, body) VALUES (%(source)s::VARCHAR, %(key)s::VARCHAR, %(event_type)s::VARCHAR, %(sent_as)s::VARCHAR, %(edited_from)s::BIGINT, %(headers)s::VARCHAR, %(state)s::VARCHAR, %(received_at)s::TIMESTAMP WITH TIME ZONE, %(digest)s, %(body)s) RETURNING billhook.delivery.id

-- operating/postpone.py _count_behind
SELECT count(distinct(other.delivery_id)) AS count_1
FROM billhook.run JOIN billhook.run AS other ON other.handler = billhook.run.handler AND other.order_key = billhook.run.order_key
WHERE other.order_key IS NOT NULL AND other.state IN ('waiting', 'due', 'running') AND other.state = %(state_1)s::VARCHAR AND other.delivery_id > billhook.run.delivery_id AND NOT other.id = ANY (%(param_1)s::BIGINT[]) AND billhook.run.id = ANY (%(param_2)s::BIGINT[])
--> run: run_order_idx
--> run: run_pkey

-- operating/postpone.py postpone
SELECT billhook.run.id, billhook.run.delivery_id, billhook.run.state, billhook.run.handler, billhook.run.order_key
FROM billhook.run
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[]) AND billhook.run.state IN ('waiting', 'due', 'running') AND billhook.run.handler IN (SELECT %(param_2)s::VARCHAR AS anon_1 UNION SELECT coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_2)s::VARCHAR), %(param_2)s::VARCHAR) AS coalesce_1 UNION SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.renamed_to = coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_2)s::VARCHAR), %(param_2)s::VARCHAR)) ORDER BY billhook.run.id
--> billhook_handler: all rows
--> billhook_handler: billhook_handler_name_key
--> run: run_pkey

-- operating/postpone.py postpone
SELECT billhook.run.id, billhook.run.delivery_id, billhook.run.state, billhook.run.handler, billhook.run.order_key
FROM billhook.run
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[]) AND billhook.run.state IN ('waiting', 'due', 'running') ORDER BY billhook.run.id
--> run: run_delivery_id_handler_key

-- operating/subscriptions.py forget
DELETE FROM billhook.billhook_subscription WHERE billhook.billhook_subscription.id = ANY (%(param_1)s::BIGINT[])
--> billhook_subscription: billhook_subscription_pkey

-- operating/subscriptions.py list_subscriptions
SELECT billhook.billhook_subscription.id, billhook.billhook_subscription.at, billhook.billhook_subscription.who, billhook.billhook_subscription.service, billhook.billhook_subscription.url, billhook.billhook_subscription.digest, billhook.billhook_subscription.event_type, billhook.billhook_subscription.threshold, billhook.billhook_subscription.recurring_threshold
FROM billhook.billhook_subscription ORDER BY billhook.billhook_subscription.id
--> billhook_subscription: billhook_subscription_pkey

-- operating/subscriptions.py remember
DELETE FROM billhook.billhook_subscription WHERE billhook.billhook_subscription.service = %(service_1)s::VARCHAR AND billhook.billhook_subscription.url = %(url_1)s::VARCHAR AND billhook.billhook_subscription.digest = %(digest_1)s::VARCHAR AND billhook.billhook_subscription.event_type = %(event_type_1)s::VARCHAR AND billhook.billhook_subscription.threshold = %(threshold_1)s::VARCHAR AND billhook.billhook_subscription.recurring_threshold = %(recurring_threshold_1)s::VARCHAR
--> billhook_subscription: all rows

-- operating/subscriptions.py remember
INSERT INTO billhook.billhook_subscription (at, who, service, url, digest, event_type, threshold, recurring_threshold) VALUES (%(at)s::TIMESTAMP WITH TIME ZONE, %(who)s::VARCHAR, %(service)s::VARCHAR, %(url)s::VARCHAR, %(digest)s::VARCHAR, %(event_type)s::VARCHAR, %(threshold)s::VARCHAR, %(recurring_threshold)s::VARCHAR) RETURNING billhook.billhook_subscription.id

-- operating/takeover.py _having
SELECT billhook.run.delivery_id
FROM billhook.run
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[]) AND billhook.run.handler = ANY (%(param_2)s::TEXT[])
--> run: run_delivery_id_handler_key

-- operating/takeover.py _rename
UPDATE billhook.delivery SET also_sent_as=%(also_sent_as)s::VARCHAR, state=%(state)s::VARCHAR, error=%(error)s::VARCHAR WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state = %(state_1)s::VARCHAR
--> delivery: delivery_failed_idx

-- operating/takeover.py _rename
UPDATE billhook.failure SET retried=%(retried)s::INTEGER WHERE billhook.failure.run_id = ANY (%(param_1)s::BIGINT[])
--> failure: failure_run_id_idx

-- operating/takeover.py _runs
SELECT billhook.run.id, billhook.run.delivery_id, billhook.run.state, billhook.run.handler, billhook.run.order_key, billhook.delivery.state AS "of"
FROM billhook.run JOIN billhook.delivery ON billhook.delivery.id = billhook.run.delivery_id
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state IN ('planned', 'done', 'dead') AND billhook.run.handler = ANY (%(param_2)s::TEXT[]) AND billhook.run.state != %(state_1)s::VARCHAR ORDER BY billhook.run.delivery_id
--> delivery: delivery_pkey
--> run: run_delivery_id_handler_key

-- postgres/database.py PostgresDatabase.facts
SELECT coalesce(pg_sequence_last_value(cast(%(sequence)s AS regclass)), 0)

-- postgres/database.py PostgresDatabase.facts
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class WHERE relkind = 'r' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %(schema)s)

-- postgres/database.py PostgresDatabase.facts
SELECT max(id) AS max_1
FROM billhook.billhook_action
--> billhook_action: billhook_action_pkey

-- postgres/database.py PostgresDatabase.facts
SELECT max(id) AS max_1
FROM billhook.billhook_handler
--> billhook_handler: billhook_handler_pkey

-- postgres/database.py PostgresDatabase.facts
SELECT max(id) AS max_1
FROM billhook.billhook_handler_list
--> billhook_handler_list: billhook_handler_list_pkey

-- postgres/database.py PostgresDatabase.facts
SELECT max(id) AS max_1
FROM billhook.billhook_release
--> billhook_release: billhook_release_pkey

-- postgres/database.py PostgresDatabase.facts
SELECT max(id) AS max_1
FROM billhook.billhook_subscription
--> billhook_subscription: billhook_subscription_pkey

-- postgres/database.py PostgresDatabase.facts
SELECT max(id) AS max_1
FROM billhook.delivery
--> delivery: delivery_pkey

-- postgres/database.py PostgresDatabase.facts
SELECT max(id) AS max_1
FROM billhook.failure
--> failure: failure_pkey

-- postgres/database.py PostgresDatabase.facts
SELECT max(id) AS max_1
FROM billhook.run
--> run: run_pkey

-- postgres/database.py PostgresDatabase.facts
SELECT pid, application_name AS application, extract(epoch FROM now() - xact_start)::float8 AS seconds FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid() AND xact_start <= now() - make_interval(secs => %(seconds)s) ORDER BY xact_start LIMIT 1

-- postgres/database.py PostgresDatabase.facts
SELECT quote_ident(current_user), quote_ident(%(schema)s)

-- postgres/database.py PostgresDatabase.facts
SELECT t.relname AS name, quote_ident(n.nspname) || '.' || quote_ident(t.relname) AS quoted, quote_ident(a.attname) AS id, quote_ident(n.nspname) || '.' || quote_ident(s.relname) AS sequence FROM pg_class s JOIN pg_namespace n ON n.oid = s.relnamespace AND n.nspname = %(schema)s JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.objid = s.oid AND d.deptype IN ('a', 'i') JOIN pg_class t ON t.oid = d.refobjid JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid WHERE CASE WHEN s.relkind = 'S' THEN has_sequence_privilege(s.oid, 'USAGE, SELECT') END ORDER BY t.relname

-- postgres/database.py PostgresDatabase.facts
SHOW autovacuum

-- postgres/database.py PostgresDatabase.facts
SHOW fsync

-- postgres/database.py PostgresDatabase.facts
SHOW full_page_writes

-- postgres/database.py PostgresDatabase.facts
SHOW is_superuser

-- postgres/database.py PostgresDatabase.facts
SHOW server_version_num

-- postgres/database.py PostgresDatabase.facts
SHOW track_counts

-- reading/compared_deliveries.py _deliveries
SELECT billhook.billhook_release.id, billhook.billhook_release.name
FROM billhook.billhook_release
WHERE billhook.billhook_release.id = ANY (%(param_1)s::BIGINT[])
--> billhook_release: billhook_release_pkey

-- reading/compared_deliveries.py _deliveries
SELECT billhook.delivery.id, billhook.delivery.body
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[])
--> delivery: delivery_pkey

-- reading/compared_deliveries.py _deliveries
SELECT billhook.delivery.id, billhook.delivery.event_type, billhook.delivery.source, length(billhook.delivery.body) AS length_1
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.digest IS NOT NULL ORDER BY billhook.delivery.id DESC
--> delivery: delivery_pkey

-- reading/compared_deliveries.py read_compared
SELECT billhook.run.delivery_id, billhook.failure.worker, billhook.failure.release_id
FROM billhook.failure JOIN billhook.run ON billhook.run.id = billhook.failure.run_id
WHERE billhook.failure.fingerprint = %(fingerprint_1)s::VARCHAR ORDER BY billhook.failure.id DESC
 LIMIT %(param_1)s::INTEGER
--> failure: failure_fingerprint_idx
--> run: run_pkey

-- reading/compared_deliveries.py read_compared
SELECT billhook.run.delivery_id, billhook.run.worker, billhook.run.release_id
FROM billhook.run
WHERE billhook.run.delivery_id > %(delivery_id_1)s::BIGINT AND billhook.run.handler IN (SELECT %(param_1)s::VARCHAR AS anon_1 UNION SELECT coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_1)s::VARCHAR), %(param_1)s::VARCHAR) AS coalesce_1 UNION SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.renamed_to = coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_1)s::VARCHAR), %(param_1)s::VARCHAR)) AND billhook.run.state = %(state_1)s::VARCHAR AND billhook.run.attempts = %(attempts_1)s::INTEGER AND billhook.run.replays = %(replays_1)s::INTEGER ORDER BY billhook.run.delivery_id DESC
 LIMIT %(param_2)s::INTEGER
--> billhook_handler: all rows
--> billhook_handler: billhook_handler_name_key
--> run: run_delivery_id_handler_key

-- reading/deliveries.py NewIds.__init__
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id <= %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey

-- reading/deliveries.py NewIds.__init__
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE true ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey

-- reading/deliveries.py NewIds.poll
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id > %(id_1)s::BIGINT OR billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) ORDER BY billhook.delivery.id
 LIMIT %(param_2)s::INTEGER
--> delivery: delivery_pkey

-- reading/deliveries.py NewIds.poll
-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id > %(id_1)s::BIGINT ORDER BY billhook.delivery.id
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey

-- reading/deliveries.py _runs
SELECT billhook.run.delivery_id, billhook.run.id, billhook.run.handler, billhook.run.state, billhook.run.attempts, billhook.run.due_at, billhook.run.finished_at, billhook.run.last_error, billhook.run.order_key, billhook.run.twin_of, billhook.run.state IN ('waiting', 'due') AND billhook.run.handler IN (SELECT coalesce(billhook.billhook_handler.renamed_to, billhook.billhook_handler.name) AS coalesce_1
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL UNION ALL SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL OR billhook.billhook_handler.renamed_to IN (SELECT coalesce(billhook.billhook_handler.renamed_to, billhook.billhook_handler.name) AS coalesce_1
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL)) AS paused, billhook.run.started_at, billhook.run.duration_seconds, billhook.run.worker, (SELECT nullif(billhook.billhook_release.name, %(nullif_2)s::VARCHAR) AS nullif_1
FROM billhook.billhook_release
WHERE billhook.billhook_release.id = billhook.run.release_id) AS release, billhook.run.not_before, (SELECT billhook.billhook_handler.next_start_at
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = billhook.run.handler) AS anon_1
FROM billhook.run
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[]) ORDER BY billhook.run.id
--> billhook_handler: all rows
--> billhook_handler: billhook_handler_name_key
--> billhook_release: billhook_release_pkey
--> run: run_delivery_id_handler_key

-- reading/deliveries.py _selected
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.event_type = %(event_type_1)s::VARCHAR ORDER BY billhook.delivery.id
--> delivery: delivery_pkey

-- reading/deliveries.py _selected
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.type_field IS NOT NULL AND billhook.delivery.state IN ('received') AND billhook.delivery.event_type = %(event_type_1)s::VARCHAR ORDER BY billhook.delivery.id
--> delivery: delivery_turn_idx

-- reading/deliveries.py count
SELECT count(*) AS count_1
FROM billhook.delivery
--> delivery: delivery_pkey

-- reading/deliveries.py details
SELECT billhook.delivery.id, billhook.delivery.source, billhook.delivery.key, billhook.delivery.event_type, billhook.delivery.state, billhook.delivery.received_at, billhook.delivery.signed_at, length(billhook.delivery.body) AS body_bytes, (SELECT min(billhook.run.twin_of) AS min_1
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id) AS twin_of, billhook.delivery.conflict_of, billhook.delivery.sent_as, billhook.delivery.edited_from, billhook.delivery.type_field, billhook.delivery.identifier_1, billhook.delivery.identifier_2, billhook.delivery.identifier_3, billhook.delivery.body, billhook.delivery.headers, billhook.delivery.error
FROM billhook.delivery
WHERE billhook.delivery.id IN (%(id_1_1)s::BIGINT) ORDER BY billhook.delivery.id
--> delivery: delivery_pkey
--> run: run_delivery_id_handler_key

-- reading/deliveries.py details
SELECT billhook.delivery.id, billhook.delivery.source, billhook.delivery.key, billhook.delivery.event_type, billhook.delivery.state, billhook.delivery.received_at, billhook.delivery.signed_at, length(billhook.delivery.body) AS body_bytes, (SELECT min(billhook.run.twin_of) AS min_1
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id) AS twin_of, billhook.delivery.conflict_of, billhook.delivery.sent_as, billhook.delivery.edited_from, billhook.delivery.type_field, billhook.delivery.identifier_1, billhook.delivery.identifier_2, billhook.delivery.identifier_3, billhook.delivery.body, billhook.delivery.headers, billhook.delivery.error
FROM billhook.delivery
WHERE billhook.delivery.id IN (%(id_1_1)s::BIGINT, %(id_1_2)s::BIGINT, %(id_1_3)s::BIGINT, %(id_1_4)s::BIGINT, %(id_1_5)s::BIGINT, %(id_1_6)s::BIGINT, %(id_1_7)s::BIGINT, %(id_1_8)s::BIGINT, %(id_1_9)s::BIGINT, %(id_1_10)s::BIGINT, %(id_1_11)s::BIGINT, %(id_1_12)s::BIGINT, %(id_1_13)s::BIGINT, %(id_1_14)s::BIGINT) ORDER BY billhook.delivery.id
--> delivery: delivery_pkey
--> run: run_delivery_id_handler_key

-- reading/deliveries.py details
SELECT billhook.delivery.id, billhook.delivery.source, billhook.delivery.key, billhook.delivery.event_type, billhook.delivery.state, billhook.delivery.received_at, billhook.delivery.signed_at, length(billhook.delivery.body) AS body_bytes, (SELECT min(billhook.run.twin_of) AS min_1
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id) AS twin_of, billhook.delivery.conflict_of, billhook.delivery.sent_as, billhook.delivery.edited_from, billhook.delivery.type_field, billhook.delivery.identifier_1, billhook.delivery.identifier_2, billhook.delivery.identifier_3, billhook.delivery.body, billhook.delivery.headers, billhook.delivery.error
FROM billhook.delivery
WHERE billhook.delivery.id IN (NULL) AND (1 != 1) ORDER BY billhook.delivery.id
--> run: run_delivery_id_handler_key

-- reading/deliveries.py details
SELECT billhook.failure.run_id, billhook.failure.attempt, billhook.failure.failed_at, billhook.failure.error, billhook.failure.traceback, billhook.failure.duration_seconds, billhook.failure.fingerprint AS issue, billhook.failure.worker, (SELECT nullif(billhook.billhook_release.name, %(nullif_2)s::VARCHAR) AS nullif_1
FROM billhook.billhook_release
WHERE billhook.billhook_release.id = billhook.failure.release_id) AS release
FROM billhook.failure JOIN billhook.run ON billhook.run.id = billhook.failure.run_id
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[]) ORDER BY billhook.failure.id
--> billhook_release: billhook_release_pkey
--> failure: failure_pkey
--> run: run_delivery_id_handler_key

-- reading/deliveries.py id_batches
SELECT coalesce(max(billhook.delivery.id), %(coalesce_2)s::INTEGER) AS coalesce_1
FROM billhook.delivery
--> delivery: delivery_pkey

-- reading/deliveries.py is_busy
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received')
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_received_idx

-- reading/deliveries.py is_busy
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received') AND NOT coalesce(billhook.delivery.event_type, %(coalesce_1)s::VARCHAR) = ANY (%(param_1)s::TEXT[])
 LIMIT %(param_2)s::INTEGER
--> delivery: delivery_received_idx

-- reading/deliveries.py is_busy
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received') AND coalesce(billhook.delivery.event_type, %(coalesce_1)s::VARCHAR) = ANY (%(param_1)s::TEXT[])
 LIMIT %(param_2)s::INTEGER
--> delivery: delivery_received_idx

-- reading/deliveries.py summaries
SELECT billhook.delivery.id, billhook.delivery.source, billhook.delivery.key, billhook.delivery.event_type, billhook.delivery.state, billhook.delivery.received_at, billhook.delivery.signed_at, length(billhook.delivery.body) AS body_bytes, (SELECT min(billhook.run.twin_of) AS min_1
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id) AS twin_of, billhook.delivery.conflict_of, billhook.delivery.sent_as, billhook.delivery.edited_from, billhook.delivery.type_field, billhook.delivery.identifier_1, billhook.delivery.identifier_2, billhook.delivery.identifier_3
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) ORDER BY billhook.delivery.id
--> delivery: delivery_conflict_idx
--> run: run_delivery_id_handler_key

-- reading/deliveries.py with_runs
SELECT billhook.delivery.id, billhook.delivery.error
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.error IS NOT NULL
--> delivery: delivery_pkey

-- reading/handler_shares.py first_release
SELECT billhook.billhook_release.name
FROM billhook.billhook_release JOIN billhook.failure ON billhook.failure.release_id = billhook.billhook_release.id
WHERE billhook.failure.fingerprint = %(fingerprint_1)s::VARCHAR ORDER BY billhook.failure.id
 LIMIT %(param_1)s::INTEGER
--> billhook_release: billhook_release_pkey
--> failure: failure_fingerprint_idx

-- reading/handler_shares.py known_issues
SELECT billhook.billhook_issue.fingerprint
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.fingerprint = ANY (%(param_1)s::TEXT[])
--> billhook_issue: billhook_issue_pkey

-- reading/handler_shares.py read_share
SELECT billhook.run.delivery_id
FROM billhook.run
WHERE billhook.run.delivery_id >= %(delivery_id_1)s::BIGINT AND billhook.run.handler = %(handler_1)s::VARCHAR ORDER BY billhook.run.delivery_id DESC
 LIMIT %(param_1)s::INTEGER
--> run: run_delivery_id_handler_key

-- reading/handler_shares.py read_share
SELECT billhook.run.delivery_id
FROM billhook.run JOIN billhook.failure ON billhook.failure.run_id = billhook.run.id
WHERE billhook.run.handler = %(handler_1)s::VARCHAR AND billhook.failure.fingerprint = %(fingerprint_1)s::VARCHAR ORDER BY billhook.failure.id DESC
 LIMIT %(param_1)s::INTEGER
--> failure: failure_fingerprint_idx
--> run: run_pkey

-- reading/search_scope.py _in_bodies
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state IN ('received') AND position(%(param_2)s IN billhook.delivery.body) > %(param_3)s::INTEGER ORDER BY billhook.delivery.id DESC
 LIMIT %(param_4)s::INTEGER
--> delivery: delivery_received_idx

-- reading/search_scope.py _in_bodies
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received') ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_received_idx

-- reading/search_scope.py read_scope
SELECT billhook.delivery.received_at
FROM billhook.delivery
WHERE (billhook.delivery.state NOT IN (%(state_1_1)s::VARCHAR, %(state_1_2)s::VARCHAR)) ORDER BY billhook.delivery.id
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey

-- reading/search_scope.py read_scope
SELECT count(*) AS count_1
FROM (SELECT billhook.delivery.id AS id
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received')
 LIMIT %(param_1)s::INTEGER) AS anon_1
--> delivery: delivery_received_idx

-- reading/search_scope.py search_bound
SELECT count(*) AS count_1, min(anon_1.id) AS min_1, min(anon_1.received_at) AS min_2
FROM (SELECT billhook.delivery.id AS id, billhook.delivery.received_at AS received_at
FROM billhook.delivery ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER) AS anon_1
--> delivery: delivery_pkey

-- reading/searches.py newest_deliveries
SELECT billhook.delivery.id, billhook.delivery.source, billhook.delivery.key, billhook.delivery.event_type, billhook.delivery.body, billhook.delivery.headers, billhook.delivery.signed_at, billhook.delivery.received_at, billhook.delivery.variant, billhook.delivery.sent_as, billhook.delivery.type_field
FROM billhook.delivery JOIN (SELECT anon_2.id AS id, sum(anon_2.size) OVER (ORDER BY anon_2.id DESC) AS bytes
FROM (SELECT billhook.delivery.id AS id, length(billhook.delivery.body) AS size
FROM billhook.delivery
WHERE (billhook.delivery.state NOT IN ('pruned', 'erased')) AND NOT (billhook.delivery.type_field IS NOT NULL AND billhook.delivery.state IN ('received') AND billhook.delivery.event_type = %(event_type_1)s::VARCHAR) AND length(billhook.delivery.body) <= %(length_1)s::INTEGER ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER) AS anon_2) AS anon_1 ON anon_1.id = billhook.delivery.id
WHERE anon_1.bytes <= %(bytes_1)s::INTEGER ORDER BY billhook.delivery.id DESC
--> delivery: delivery_pkey

-- reading/searches.py read_bodies
SELECT billhook.delivery.id, billhook.delivery.event_type, billhook.delivery.state, billhook.delivery.body, billhook.delivery.type_field
FROM billhook.delivery
WHERE (billhook.delivery.event_type = ANY (%(param_1)s::TEXT[]) OR billhook.delivery.type_field IS NOT NULL AND billhook.delivery.state IN ('received') AND billhook.delivery.event_type = %(event_type_1)s::VARCHAR) AND billhook.delivery.received_at >= %(received_at_1)s::TIMESTAMP WITH TIME ZONE AND billhook.delivery.id > %(id_1)s::BIGINT ORDER BY billhook.delivery.id
 LIMIT %(param_2)s::INTEGER
--> delivery: delivery_pkey

-- reading/searches.py related_deliveries
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.source = %(source_1)s::VARCHAR AND billhook.delivery.key = %(key_1)s::VARCHAR AND billhook.delivery.id != %(id_1)s::BIGINT
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_source_key_variant_key

-- reading/searches.py related_deliveries
SELECT billhook.run.delivery_id
FROM billhook.run
WHERE billhook.run.delivery_id BETWEEN %(delivery_id_1)s::BIGINT AND %(delivery_id_2)s::BIGINT AND billhook.run.delivery_id != %(delivery_id_3)s::BIGINT AND billhook.run.handler = %(handler_1)s::VARCHAR AND billhook.run.order_key = %(order_key_1)s::VARCHAR AND billhook.run.delivery_id < %(delivery_id_4)s::BIGINT ORDER BY billhook.run.delivery_id DESC
 LIMIT %(param_1)s::INTEGER
--> run: run_delivery_id_handler_key

-- reading/searches.py related_deliveries
SELECT billhook.run.delivery_id
FROM billhook.run
WHERE billhook.run.delivery_id BETWEEN %(delivery_id_1)s::BIGINT AND %(delivery_id_2)s::BIGINT AND billhook.run.delivery_id != %(delivery_id_3)s::BIGINT AND billhook.run.handler = %(handler_1)s::VARCHAR AND billhook.run.order_key = %(order_key_1)s::VARCHAR AND billhook.run.delivery_id > %(delivery_id_4)s::BIGINT ORDER BY billhook.run.delivery_id
 LIMIT %(param_1)s::INTEGER
--> run: run_delivery_id_handler_key

-- reading/searches.py search_bodies
SELECT billhook.delivery.id, billhook.delivery.event_type, billhook.delivery.body
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND position(%(param_2)s IN billhook.delivery.body) > %(param_3)s::INTEGER ORDER BY billhook.delivery.id
--> delivery: delivery_pkey

-- reading/worker_list.py list_workers
SELECT billhook.run.worker, billhook.run.delivery_id, billhook.run.handler, billhook.run.started_at
FROM billhook.run
WHERE billhook.run.state IN ('due', 'running') AND billhook.run.state = %(state_1)s::VARCHAR ORDER BY billhook.run.id
 LIMIT %(param_1)s::INTEGER
--> run: run_claim_idx

-- running/claims.py _find
SELECT few.run_id, few.token, few.handler, few.attempts, few.queued, few.delivery_id, few.due_at, few.runs_alone, few.uncounted_attempts, few.postponements, few.replays, few.order_key, billhook.delivery.id, billhook.delivery.source, billhook.delivery.key, billhook.delivery.event_type, billhook.delivery.body, billhook.delivery.headers, billhook.delivery.signed_at, billhook.delivery.received_at, billhook.delivery.variant, billhook.delivery.sent_as, billhook.delivery.type_field
FROM json_array_elements_text(CAST(%(names)s::VARCHAR AS JSON)) AS wanted JOIN LATERAL (SELECT billhook.run.id AS run_id, billhook.run.token AS token, billhook.run.handler AS handler, billhook.run.attempts AS attempts, billhook.run.queued AS queued, billhook.run.delivery_id AS delivery_id, billhook.run.due_at AS due_at, billhook.run.runs_alone AS runs_alone, billhook.run.uncounted_attempts AS uncounted_attempts, billhook.run.postponements AS postponements, billhook.run.replays AS replays, billhook.run.order_key AS order_key
FROM billhook.run
WHERE billhook.run.state = 'due' AND billhook.run.handler = wanted.value AND billhook.run.due_at <= %(now)s::TIMESTAMP WITH TIME ZONE AND NOT (EXISTS (SELECT *
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = billhook.run.handler AND billhook.billhook_handler.paused_at IS NOT NULL)) AND billhook.run.delivery_id = %(of_delivery)s::BIGINT AND billhook.run.runs_alone = %(runs_alone_1)s::INTEGER ORDER BY billhook.run.due_at, billhook.run.id
 LIMIT %(capacity)s::INTEGER FOR UPDATE OF run SKIP LOCKED) AS few ON true JOIN billhook.delivery ON billhook.delivery.id = few.delivery_id
--> billhook_handler: billhook_handler_name_key
--> delivery: delivery_pkey
--> run: run_claim_idx

-- running/claims.py _find
SELECT few.run_id, few.token, few.handler, few.attempts, few.queued, few.delivery_id, few.due_at, few.runs_alone, few.uncounted_attempts, few.postponements, few.replays, few.order_key, billhook.delivery.id, billhook.delivery.source, billhook.delivery.key, billhook.delivery.event_type, billhook.delivery.body, billhook.delivery.headers, billhook.delivery.signed_at, billhook.delivery.received_at, billhook.delivery.variant, billhook.delivery.sent_as, billhook.delivery.type_field
FROM json_array_elements_text(CAST(%(names)s::VARCHAR AS JSON)) AS wanted JOIN LATERAL (SELECT billhook.run.id AS run_id, billhook.run.token AS token, billhook.run.handler AS handler, billhook.run.attempts AS attempts, billhook.run.queued AS queued, billhook.run.delivery_id AS delivery_id, billhook.run.due_at AS due_at, billhook.run.runs_alone AS runs_alone, billhook.run.uncounted_attempts AS uncounted_attempts, billhook.run.postponements AS postponements, billhook.run.replays AS replays, billhook.run.order_key AS order_key
FROM billhook.run
WHERE billhook.run.state = 'due' AND billhook.run.handler = wanted.value AND billhook.run.due_at <= %(now)s::TIMESTAMP WITH TIME ZONE AND NOT (EXISTS (SELECT *
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = billhook.run.handler AND billhook.billhook_handler.paused_at IS NOT NULL)) AND billhook.run.delivery_id = %(of_delivery)s::BIGINT ORDER BY billhook.run.due_at, billhook.run.id
 LIMIT %(capacity)s::INTEGER FOR UPDATE OF run SKIP LOCKED) AS few ON true JOIN billhook.delivery ON billhook.delivery.id = few.delivery_id
--> billhook_handler: billhook_handler_name_key
--> delivery: delivery_pkey
--> run: run_claim_idx

-- running/claims.py _find
SELECT few.run_id, few.token, few.handler, few.attempts, few.queued, few.delivery_id, few.due_at, few.runs_alone, few.uncounted_attempts, few.postponements, few.replays, few.order_key, billhook.delivery.id, billhook.delivery.source, billhook.delivery.key, billhook.delivery.event_type, billhook.delivery.body, billhook.delivery.headers, billhook.delivery.signed_at, billhook.delivery.received_at, billhook.delivery.variant, billhook.delivery.sent_as, billhook.delivery.type_field
FROM json_array_elements_text(CAST(%(names)s::VARCHAR AS JSON)) AS wanted JOIN LATERAL (SELECT billhook.run.id AS run_id, billhook.run.token AS token, billhook.run.handler AS handler, billhook.run.attempts AS attempts, billhook.run.queued AS queued, billhook.run.delivery_id AS delivery_id, billhook.run.due_at AS due_at, billhook.run.runs_alone AS runs_alone, billhook.run.uncounted_attempts AS uncounted_attempts, billhook.run.postponements AS postponements, billhook.run.replays AS replays, billhook.run.order_key AS order_key
FROM billhook.run
WHERE billhook.run.state = 'due' AND billhook.run.handler = wanted.value AND billhook.run.due_at <= %(now)s::TIMESTAMP WITH TIME ZONE AND NOT (EXISTS (SELECT *
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = billhook.run.handler AND billhook.billhook_handler.paused_at IS NOT NULL)) AND billhook.run.due_at >= %(due_from)s::TIMESTAMP WITH TIME ZONE AND billhook.run.runs_alone = %(runs_alone_1)s::INTEGER ORDER BY billhook.run.due_at, billhook.run.id
 LIMIT %(capacity)s::INTEGER FOR UPDATE OF run SKIP LOCKED) AS few ON true JOIN billhook.delivery ON billhook.delivery.id = few.delivery_id
--> billhook_handler: billhook_handler_name_key
--> delivery: delivery_pkey
--> run: run_claim_idx

-- running/claims.py _find
SELECT few.run_id, few.token, few.handler, few.attempts, few.queued, few.delivery_id, few.due_at, few.runs_alone, few.uncounted_attempts, few.postponements, few.replays, few.order_key, billhook.delivery.id, billhook.delivery.source, billhook.delivery.key, billhook.delivery.event_type, billhook.delivery.body, billhook.delivery.headers, billhook.delivery.signed_at, billhook.delivery.received_at, billhook.delivery.variant, billhook.delivery.sent_as, billhook.delivery.type_field
FROM json_array_elements_text(CAST(%(names)s::VARCHAR AS JSON)) AS wanted JOIN LATERAL (SELECT billhook.run.id AS run_id, billhook.run.token AS token, billhook.run.handler AS handler, billhook.run.attempts AS attempts, billhook.run.queued AS queued, billhook.run.delivery_id AS delivery_id, billhook.run.due_at AS due_at, billhook.run.runs_alone AS runs_alone, billhook.run.uncounted_attempts AS uncounted_attempts, billhook.run.postponements AS postponements, billhook.run.replays AS replays, billhook.run.order_key AS order_key
FROM billhook.run
WHERE billhook.run.state = 'due' AND billhook.run.handler = wanted.value AND billhook.run.due_at <= %(now)s::TIMESTAMP WITH TIME ZONE AND NOT (EXISTS (SELECT *
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = billhook.run.handler AND billhook.billhook_handler.paused_at IS NOT NULL)) AND billhook.run.runs_alone = %(runs_alone_1)s::INTEGER ORDER BY billhook.run.due_at, billhook.run.id
 LIMIT %(capacity)s::INTEGER FOR UPDATE OF run SKIP LOCKED) AS few ON true JOIN billhook.delivery ON billhook.delivery.id = few.delivery_id
--> billhook_handler: billhook_handler_name_key
--> delivery: delivery_pkey
--> run: run_claim_idx

-- running/claims.py _find
SELECT few.run_id, few.token, few.handler, few.attempts, few.queued, few.delivery_id, few.due_at, few.runs_alone, few.uncounted_attempts, few.postponements, few.replays, few.order_key, billhook.delivery.id, billhook.delivery.source, billhook.delivery.key, billhook.delivery.event_type, billhook.delivery.body, billhook.delivery.headers, billhook.delivery.signed_at, billhook.delivery.received_at, billhook.delivery.variant, billhook.delivery.sent_as, billhook.delivery.type_field
FROM json_array_elements_text(CAST(%(names)s::VARCHAR AS JSON)) AS wanted JOIN LATERAL (SELECT billhook.run.id AS run_id, billhook.run.token AS token, billhook.run.handler AS handler, billhook.run.attempts AS attempts, billhook.run.queued AS queued, billhook.run.delivery_id AS delivery_id, billhook.run.due_at AS due_at, billhook.run.runs_alone AS runs_alone, billhook.run.uncounted_attempts AS uncounted_attempts, billhook.run.postponements AS postponements, billhook.run.replays AS replays, billhook.run.order_key AS order_key
FROM billhook.run
WHERE billhook.run.state = 'due' AND billhook.run.handler = wanted.value AND billhook.run.due_at <= %(now)s::TIMESTAMP WITH TIME ZONE AND NOT (EXISTS (SELECT *
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = billhook.run.handler AND billhook.billhook_handler.paused_at IS NOT NULL)) ORDER BY billhook.run.due_at, billhook.run.id
 LIMIT %(capacity)s::INTEGER FOR UPDATE OF run SKIP LOCKED) AS few ON true JOIN billhook.delivery ON billhook.delivery.id = few.delivery_id
--> billhook_handler: billhook_handler_name_key
--> delivery: delivery_pkey
--> run: run_claim_idx

-- running/claims.py find_suspect
WITH few AS
(SELECT billhook.run.id AS run_id, billhook.run.token AS token, billhook.run.handler AS handler, billhook.run.attempts AS attempts, billhook.run.queued AS queued, billhook.run.delivery_id AS delivery_id, billhook.run.due_at AS due_at, billhook.run.runs_alone AS runs_alone, billhook.run.uncounted_attempts AS uncounted_attempts, billhook.run.postponements AS postponements, billhook.run.replays AS replays, billhook.run.order_key AS order_key
FROM billhook.run
WHERE billhook.run.runs_alone = 1 AND billhook.run.state IN ('due') AND billhook.run.handler = ANY (%(names)s::TEXT[]) AND NOT CAST(billhook.run.id AS TEXT) || %(param_1)s::VARCHAR || CAST(billhook.run.token AS TEXT) = ANY (%(held)s::TEXT[]) AND billhook.run.due_at <= %(now)s::TIMESTAMP WITH TIME ZONE AND NOT (EXISTS (SELECT *
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = billhook.run.handler AND billhook.billhook_handler.paused_at IS NOT NULL)) AND billhook.run.delivery_id = %(of_delivery)s::BIGINT ORDER BY billhook.run.beside_others, billhook.run.attempts - billhook.run.uncounted_attempts, billhook.run.due_at, billhook.run.id
 LIMIT %(param_2)s::INTEGER FOR UPDATE OF run SKIP LOCKED)
 SELECT few.run_id, few.token, few.handler, few.attempts, few.queued, few.delivery_id, few.due_at, few.runs_alone, few.uncounted_attempts, few.postponements, few.replays, few.order_key, billhook.delivery.id, billhook.delivery.source, billhook.delivery.key, billhook.delivery.event_type, billhook.delivery.body, billhook.delivery.headers, billhook.delivery.signed_at, billhook.delivery.received_at, billhook.delivery.variant, billhook.delivery.sent_as, billhook.delivery.type_field
FROM few JOIN billhook.delivery ON billhook.delivery.id = few.delivery_id
--> billhook_handler: billhook_handler_name_key
--> delivery: delivery_pkey
--> run: run_alone_idx

-- running/claims.py find_suspect
WITH few AS
(SELECT billhook.run.id AS run_id, billhook.run.token AS token, billhook.run.handler AS handler, billhook.run.attempts AS attempts, billhook.run.queued AS queued, billhook.run.delivery_id AS delivery_id, billhook.run.due_at AS due_at, billhook.run.runs_alone AS runs_alone, billhook.run.uncounted_attempts AS uncounted_attempts, billhook.run.postponements AS postponements, billhook.run.replays AS replays, billhook.run.order_key AS order_key
FROM billhook.run
WHERE billhook.run.runs_alone = 1 AND billhook.run.state IN ('due') AND billhook.run.handler = ANY (%(names)s::TEXT[]) AND NOT CAST(billhook.run.id AS TEXT) || %(param_1)s::VARCHAR || CAST(billhook.run.token AS TEXT) = ANY (%(held)s::TEXT[]) AND billhook.run.due_at <= %(now)s::TIMESTAMP WITH TIME ZONE AND NOT (EXISTS (SELECT *
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = billhook.run.handler AND billhook.billhook_handler.paused_at IS NOT NULL)) ORDER BY billhook.run.beside_others, billhook.run.attempts - billhook.run.uncounted_attempts, billhook.run.due_at, billhook.run.id
 LIMIT %(param_2)s::INTEGER FOR UPDATE OF run SKIP LOCKED)
 SELECT few.run_id, few.token, few.handler, few.attempts, few.queued, few.delivery_id, few.due_at, few.runs_alone, few.uncounted_attempts, few.postponements, few.replays, few.order_key, billhook.delivery.id, billhook.delivery.source, billhook.delivery.key, billhook.delivery.event_type, billhook.delivery.body, billhook.delivery.headers, billhook.delivery.signed_at, billhook.delivery.received_at, billhook.delivery.variant, billhook.delivery.sent_as, billhook.delivery.type_field
FROM few JOIN billhook.delivery ON billhook.delivery.id = few.delivery_id
--> billhook_handler: billhook_handler_name_key
--> delivery: delivery_pkey
--> run: run_alone_idx

-- running/content_duplicates.py find_duplicates
SELECT billhook.run.handler, billhook.run.identity, billhook.run.delivery_id, billhook.delivery.received_at
FROM billhook.run JOIN billhook.delivery ON billhook.delivery.id = billhook.run.delivery_id
WHERE billhook.run.handler = ANY (%(param_1)s::TEXT[]) AND billhook.run.identity = ANY (%(param_2)s::TEXT[]) AND billhook.run.identity IS NOT NULL AND billhook.run.twin_of IS NULL AND billhook.delivery.received_at >= %(received_at_1)s::TIMESTAMP WITH TIME ZONE ORDER BY billhook.run.id
--> delivery: delivery_pkey
--> run: run_identity_idx

-- running/due.py count_running
SELECT billhook.run.handler, count(*) AS count_1
FROM billhook.run
WHERE billhook.run.state IN ('due', 'running') AND billhook.run.state = %(state_1)s::VARCHAR AND billhook.run.handler = ANY (%(param_1)s::TEXT[]) GROUP BY billhook.run.handler
--> run: run_claim_idx

-- running/due.py count_unfinished
SELECT count(*) AS count_1
FROM (SELECT billhook.delivery.id AS id
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received', 'planned')
 LIMIT %(param_1)s::INTEGER) AS anon_1
--> delivery: delivery_unfinished_idx

-- running/due.py next_times
SELECT CASE WHEN state = 'due' AND runs_alone = 1 THEN 'suspect' ELSE state END, handler, min(due_at) FROM billhook.run WHERE delivery_id = %(delivery_id)s::BIGINT AND state IN ('due', 'running') GROUP BY 1, 2
    UNION ALL SELECT 'paused', name, paused_at FROM billhook.billhook_handler WHERE paused_at IS NOT NULL
    UNION ALL SELECT 'start', name, next_start_at FROM billhook.billhook_handler WHERE next_start_at IS NOT NULL
    UNION ALL SELECT 'held', owner, held_at FROM billhook.billhook_worker WHERE held_at IS NOT NULL
--> billhook_handler: all rows
--> billhook_worker: billhook_worker_held_idx
--> run: run_delivery_id_handler_key

-- running/due.py next_times
WITH RECURSIVE due (handler) AS (
        SELECT (SELECT handler FROM billhook.run WHERE state = 'due' ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM billhook.run WHERE state = 'due' AND run.handler > due.handler
            ORDER BY handler LIMIT 1
        ) FROM due WHERE due.handler IS NOT NULL
    ), running (handler) AS (
        SELECT (SELECT handler FROM billhook.run WHERE state = 'running' ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM billhook.run WHERE state = 'running' AND run.handler > running.handler
            ORDER BY handler LIMIT 1
        ) FROM running WHERE running.handler IS NOT NULL
    ) SELECT 'due' AS kind, handler, (
    SELECT due_at FROM billhook.run WHERE state = 'due' AND run.handler = due.handler AND runs_alone = 0 ORDER BY due_at LIMIT 1
) FROM due WHERE handler IS NOT NULL UNION ALL SELECT 'running' AS kind, handler, (
    SELECT due_at FROM billhook.run WHERE state = 'running' AND run.handler = running.handler  ORDER BY due_at LIMIT 1
) FROM running WHERE handler IS NOT NULL UNION ALL SELECT 'suspect', handler, min(due_at) FROM billhook.run WHERE runs_alone = 1 AND state IN ('due') GROUP BY handler
    UNION ALL SELECT 'paused', name, paused_at FROM billhook.billhook_handler WHERE paused_at IS NOT NULL
    UNION ALL SELECT 'start', name, next_start_at FROM billhook.billhook_handler WHERE next_start_at IS NOT NULL
    UNION ALL SELECT 'held', owner, held_at FROM billhook.billhook_worker WHERE held_at IS NOT NULL
--> billhook_handler: all rows
--> billhook_worker: billhook_worker_held_idx
--> run: run_alone_idx
--> run: run_claim_idx

-- running/due.py next_times
WITH due (handler) AS (SELECT value FROM json_array_elements_text(CAST(%(names)s::VARCHAR AS json)) AS one (value)), running AS (SELECT handler FROM due) SELECT 'due' AS kind, handler, (
    SELECT due_at FROM billhook.run WHERE state = 'due' AND run.handler = due.handler AND runs_alone = 0 AND due_at >= %(due_from)s::TIMESTAMP WITH TIME ZONE ORDER BY due_at LIMIT 1
) FROM due WHERE handler IS NOT NULL UNION ALL SELECT 'running' AS kind, handler, (
    SELECT due_at FROM billhook.run WHERE state = 'running' AND run.handler = running.handler AND due_at >= %(leased_from)s::TIMESTAMP WITH TIME ZONE ORDER BY due_at LIMIT 1
) FROM running WHERE handler IS NOT NULL UNION ALL SELECT 'suspect', handler, min(due_at) FROM billhook.run WHERE runs_alone = 1 AND state IN ('due') GROUP BY handler
    UNION ALL SELECT 'paused', name, paused_at FROM billhook.billhook_handler WHERE paused_at IS NOT NULL
    UNION ALL SELECT 'start', name, next_start_at FROM billhook.billhook_handler WHERE next_start_at IS NOT NULL
    UNION ALL SELECT 'held', owner, held_at FROM billhook.billhook_worker WHERE held_at IS NOT NULL
--> billhook_handler: all rows
--> billhook_worker: billhook_worker_held_idx
--> run: run_alone_idx
--> run: run_claim_idx

-- running/due.py pending
SELECT billhook.delivery.id, billhook.delivery.received_at
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received') AND billhook.delivery.received_at <= %(received_at_1)s::TIMESTAMP WITH TIME ZONE AND NOT coalesce(billhook.delivery.event_type, %(coalesce_1)s::VARCHAR) = ANY (%(param_1)s::TEXT[]) ORDER BY billhook.delivery.id
 LIMIT %(param_2)s::INTEGER
--> delivery: delivery_received_idx

-- running/due.py pending
SELECT billhook.delivery.id, billhook.delivery.received_at
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received') AND billhook.delivery.received_at <= %(received_at_1)s::TIMESTAMP WITH TIME ZONE AND coalesce(billhook.delivery.event_type, %(coalesce_1)s::VARCHAR) = ANY (%(param_1)s::TEXT[]) ORDER BY billhook.delivery.id
 LIMIT %(param_2)s::INTEGER
--> delivery: delivery_received_idx

-- running/due.py pending
SELECT billhook.delivery.id, billhook.delivery.received_at
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received') AND billhook.delivery.received_at <= %(received_at_1)s::TIMESTAMP WITH TIME ZONE ORDER BY billhook.delivery.id
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_received_idx

-- running/due.py pending
SELECT billhook.run.delivery_id, billhook.run.due_at
FROM billhook.run
WHERE billhook.run.due_at <= %(due_at_1)s::TIMESTAMP WITH TIME ZONE AND billhook.run.runs_alone = 1 AND billhook.run.state IN ('due') AND billhook.run.handler = ANY (%(param_1)s::TEXT[])
 LIMIT %(param_2)s::INTEGER
--> run: run_alone_idx

-- running/due.py pending
SELECT billhook.run.delivery_id, billhook.run.due_at
FROM billhook.run
WHERE billhook.run.due_at <= %(due_at_1)s::TIMESTAMP WITH TIME ZONE AND billhook.run.state IN ('due', 'running') AND billhook.run.state = %(state_1)s::VARCHAR
 LIMIT %(param_1)s::INTEGER
--> run: run_claim_idx

-- running/due.py pending
-- running/limits.py Limiter.startable
SELECT billhook.run.delivery_id, billhook.run.due_at, billhook.run.attempts
FROM billhook.run
WHERE billhook.run.state IN ('due', 'running') AND billhook.run.state = %(state_1)s::VARCHAR AND billhook.run.handler = %(handler_1)s::VARCHAR AND billhook.run.due_at <= %(due_at_1)s::TIMESTAMP WITH TIME ZONE ORDER BY billhook.run.due_at, billhook.run.id
 LIMIT %(param_1)s::INTEGER
--> run: run_claim_idx

-- running/due.py read_unread
SELECT (SELECT max(billhook.billhook_worker.list_id) AS max_1
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.list_id IS NOT NULL AND billhook.billhook_worker.held_at IS NULL AND billhook.billhook_worker.seen_at > %(alive_since)s::TIMESTAMP WITH TIME ZONE) AS anon_1, billhook.delivery.id, billhook.delivery.source, billhook.delivery.key, billhook.delivery.event_type, billhook.delivery.body, billhook.delivery.headers, billhook.delivery.signed_at, billhook.delivery.received_at, billhook.delivery.variant, billhook.delivery.sent_as, billhook.delivery.type_field
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received') AND NOT coalesce(billhook.delivery.event_type, %(coalesce_1)s::VARCHAR) = ANY (%(param_1)s::TEXT[]) ORDER BY billhook.delivery.id
 LIMIT %(at_most)s::INTEGER
--> billhook_worker: billhook_worker_seen_at_idx
--> delivery: delivery_received_idx

-- running/due.py read_unread
SELECT (SELECT max(billhook.billhook_worker.list_id) AS max_1
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.list_id IS NOT NULL AND billhook.billhook_worker.held_at IS NULL AND billhook.billhook_worker.seen_at > %(alive_since)s::TIMESTAMP WITH TIME ZONE) AS anon_1, billhook.delivery.id, billhook.delivery.source, billhook.delivery.key, billhook.delivery.event_type, billhook.delivery.body, billhook.delivery.headers, billhook.delivery.signed_at, billhook.delivery.received_at, billhook.delivery.variant, billhook.delivery.sent_as, billhook.delivery.type_field
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received') AND billhook.delivery.id = %(delivery_id)s::BIGINT ORDER BY billhook.delivery.id
 LIMIT %(at_most)s::INTEGER
--> billhook_worker: billhook_worker_seen_at_idx
--> delivery: delivery_received_idx

-- running/due.py read_unread
SELECT (SELECT max(billhook.billhook_worker.list_id) AS max_1
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.list_id IS NOT NULL AND billhook.billhook_worker.held_at IS NULL AND billhook.billhook_worker.seen_at > %(alive_since)s::TIMESTAMP WITH TIME ZONE) AS anon_1, billhook.delivery.id, billhook.delivery.source, billhook.delivery.key, billhook.delivery.event_type, billhook.delivery.body, billhook.delivery.headers, billhook.delivery.signed_at, billhook.delivery.received_at, billhook.delivery.variant, billhook.delivery.sent_as, billhook.delivery.type_field
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received') AND billhook.delivery.id >= %(from_id)s::BIGINT ORDER BY billhook.delivery.id
 LIMIT %(at_most)s::INTEGER
--> billhook_worker: billhook_worker_seen_at_idx
--> delivery: delivery_received_idx

-- running/due.py read_unread
SELECT (SELECT max(billhook.billhook_worker.list_id) AS max_1
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.list_id IS NOT NULL AND billhook.billhook_worker.held_at IS NULL AND billhook.billhook_worker.seen_at > %(alive_since)s::TIMESTAMP WITH TIME ZONE) AS anon_1, billhook.delivery.id, billhook.delivery.source, billhook.delivery.key, billhook.delivery.event_type, billhook.delivery.body, billhook.delivery.headers, billhook.delivery.signed_at, billhook.delivery.received_at, billhook.delivery.variant, billhook.delivery.sent_as, billhook.delivery.type_field
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received') AND coalesce(billhook.delivery.event_type, %(coalesce_1)s::VARCHAR) = ANY (%(param_1)s::TEXT[]) ORDER BY billhook.delivery.id
 LIMIT %(at_most)s::INTEGER
--> billhook_worker: billhook_worker_seen_at_idx
--> delivery: delivery_received_idx

-- running/due.py read_unread
SELECT (SELECT max(billhook.billhook_worker.list_id) AS max_1
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.list_id IS NOT NULL AND billhook.billhook_worker.held_at IS NULL AND billhook.billhook_worker.seen_at > %(alive_since)s::TIMESTAMP WITH TIME ZONE) AS anon_1, billhook.delivery.id, billhook.delivery.source, billhook.delivery.key, billhook.delivery.event_type, billhook.delivery.body, billhook.delivery.headers, billhook.delivery.signed_at, billhook.delivery.received_at, billhook.delivery.variant, billhook.delivery.sent_as, billhook.delivery.type_field
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received') ORDER BY billhook.delivery.id
 LIMIT %(at_most)s::INTEGER
--> billhook_worker: billhook_worker_seen_at_idx
--> delivery: delivery_received_idx

-- running/due.py reset_far_due_times
UPDATE billhook.run SET due_at=CASE WHEN (billhook.run.not_before > %(param_1)s::TIMESTAMP WITH TIME ZONE) THEN billhook.run.not_before ELSE %(param_1)s::TIMESTAMP WITH TIME ZONE END WHERE billhook.run.id IN (SELECT billhook.run.id
FROM billhook.run
WHERE billhook.run.runs_alone = 1 AND billhook.run.state IN ('due') AND billhook.run.due_at > %(due_at_1)s::TIMESTAMP WITH TIME ZONE FOR UPDATE SKIP LOCKED)
--> run: run_alone_idx
--> run: run_pkey

-- running/due.py reset_far_due_times
UPDATE billhook.run SET due_at=CASE WHEN (billhook.run.not_before > %(param_1)s::TIMESTAMP WITH TIME ZONE) THEN billhook.run.not_before ELSE %(param_1)s::TIMESTAMP WITH TIME ZONE END WHERE billhook.run.id IN (SELECT billhook.run.id
FROM billhook.run
WHERE billhook.run.state IN ('due', 'running') AND billhook.run.state = %(state_1)s::VARCHAR AND billhook.run.handler = %(handler_1)s::VARCHAR AND billhook.run.due_at > %(due_at_1)s::TIMESTAMP WITH TIME ZONE FOR UPDATE SKIP LOCKED)
--> run: run_claim_idx
--> run: run_pkey

-- running/filters.py DeliveryFilter.ids
SELECT anon_1.id
FROM (SELECT anon_2.id AS id
FROM (SELECT found.id AS id
FROM billhook.delivery AS found
WHERE found.identifier_1 = %(identifier_1_1)s::VARCHAR AND found.id < %(id_1)s::BIGINT ORDER BY found.id DESC
 LIMIT %(param_1)s::INTEGER) AS anon_2 UNION ALL SELECT anon_3.id AS id
FROM (SELECT found.id AS id
FROM billhook.delivery AS found
WHERE found.identifier_2 = %(identifier_2_1)s::VARCHAR AND found.id < %(id_2)s::BIGINT ORDER BY found.id DESC
 LIMIT %(param_2)s::INTEGER) AS anon_3 UNION ALL SELECT anon_4.id AS id
FROM (SELECT found.id AS id
FROM billhook.delivery AS found
WHERE found.identifier_3 = %(identifier_3_1)s::VARCHAR AND found.id < %(id_3)s::BIGINT ORDER BY found.id DESC
 LIMIT %(param_3)s::INTEGER) AS anon_4 UNION ALL SELECT anon_5.id AS id
FROM (SELECT found.id AS id
FROM billhook.delivery AS found
WHERE found.source IN (WITH RECURSIVE sources (source) AS (
        SELECT (SELECT source FROM billhook.delivery WHERE TRUE ORDER BY source LIMIT 1)
        UNION ALL SELECT (
            SELECT source FROM billhook.delivery WHERE TRUE AND delivery.source > sources.source
            ORDER BY source LIMIT 1
        ) FROM sources WHERE sources.source IS NOT NULL
    ) SELECT source FROM sources WHERE source IS NOT NULL) AND found.key = %(key_1)s::VARCHAR AND found.id < %(id_4)s::BIGINT ORDER BY found.id DESC
 LIMIT %(param_4)s::INTEGER) AS anon_5 UNION ALL SELECT anon_6.id AS id
FROM (SELECT found.id AS id
FROM billhook.delivery AS found
WHERE found.id = %(id_5)s::BIGINT AND found.id < %(id_6)s::BIGINT ORDER BY found.id DESC
 LIMIT %(param_5)s::INTEGER) AS anon_6) AS anon_1
WHERE anon_1.id < %(id_7)s::BIGINT ORDER BY anon_1.id DESC
 LIMIT %(param_6)s::INTEGER
--> delivery: delivery_identifier_1_idx
--> delivery: delivery_identifier_2_idx
--> delivery: delivery_identifier_3_idx
--> delivery: delivery_pkey
--> delivery: delivery_source_key_variant_key

-- running/filters.py DeliveryFilter.ids
SELECT anon_1.id
FROM (SELECT anon_2.id AS id
FROM (SELECT found.id AS id
FROM billhook.delivery AS found
WHERE found.identifier_1 = %(identifier_1_1)s::VARCHAR AND found.id < %(id_1)s::BIGINT ORDER BY found.id DESC
 LIMIT %(param_1)s::INTEGER) AS anon_2 UNION ALL SELECT anon_3.id AS id
FROM (SELECT found.id AS id
FROM billhook.delivery AS found
WHERE found.identifier_2 = %(identifier_2_1)s::VARCHAR AND found.id < %(id_2)s::BIGINT ORDER BY found.id DESC
 LIMIT %(param_2)s::INTEGER) AS anon_3 UNION ALL SELECT anon_4.id AS id
FROM (SELECT found.id AS id
FROM billhook.delivery AS found
WHERE found.identifier_3 = %(identifier_3_1)s::VARCHAR AND found.id < %(id_3)s::BIGINT ORDER BY found.id DESC
 LIMIT %(param_3)s::INTEGER) AS anon_4 UNION ALL SELECT anon_5.id AS id
FROM (SELECT found.id AS id
FROM billhook.delivery AS found
WHERE found.source IN (WITH RECURSIVE sources (source) AS (
        SELECT (SELECT source FROM billhook.delivery WHERE TRUE ORDER BY source LIMIT 1)
        UNION ALL SELECT (
            SELECT source FROM billhook.delivery WHERE TRUE AND delivery.source > sources.source
            ORDER BY source LIMIT 1
        ) FROM sources WHERE sources.source IS NOT NULL
    ) SELECT source FROM sources WHERE source IS NOT NULL) AND found.key = %(key_1)s::VARCHAR AND found.id < %(id_4)s::BIGINT ORDER BY found.id DESC
 LIMIT %(param_4)s::INTEGER) AS anon_5) AS anon_1
WHERE anon_1.id < %(id_5)s::BIGINT ORDER BY anon_1.id DESC
 LIMIT %(param_5)s::INTEGER
--> delivery: delivery_identifier_1_idx
--> delivery: delivery_identifier_2_idx
--> delivery: delivery_identifier_3_idx
--> delivery: delivery_pkey
--> delivery: delivery_source_key_variant_key

-- running/filters.py DeliveryFilter.ids
SELECT anon_1.id
FROM (SELECT anon_2.id AS id
FROM (SELECT found.id AS id
FROM billhook.delivery AS found
WHERE found.identifier_1 = %(identifier_1_1)s::VARCHAR ORDER BY found.id DESC
 LIMIT %(param_1)s::INTEGER) AS anon_2 UNION ALL SELECT anon_3.id AS id
FROM (SELECT found.id AS id
FROM billhook.delivery AS found
WHERE found.identifier_2 = %(identifier_2_1)s::VARCHAR ORDER BY found.id DESC
 LIMIT %(param_2)s::INTEGER) AS anon_3 UNION ALL SELECT anon_4.id AS id
FROM (SELECT found.id AS id
FROM billhook.delivery AS found
WHERE found.identifier_3 = %(identifier_3_1)s::VARCHAR ORDER BY found.id DESC
 LIMIT %(param_3)s::INTEGER) AS anon_4 UNION ALL SELECT anon_5.id AS id
FROM (SELECT found.id AS id
FROM billhook.delivery AS found
WHERE found.source IN (WITH RECURSIVE sources (source) AS (
        SELECT (SELECT source FROM billhook.delivery WHERE TRUE ORDER BY source LIMIT 1)
        UNION ALL SELECT (
            SELECT source FROM billhook.delivery WHERE TRUE AND delivery.source > sources.source
            ORDER BY source LIMIT 1
        ) FROM sources WHERE sources.source IS NOT NULL
    ) SELECT source FROM sources WHERE source IS NOT NULL) AND found.key = %(key_1)s::VARCHAR ORDER BY found.id DESC
 LIMIT %(param_4)s::INTEGER) AS anon_5 UNION ALL SELECT anon_6.id AS id
FROM (SELECT found.id AS id
FROM billhook.delivery AS found
WHERE found.id = %(id_1)s::BIGINT ORDER BY found.id DESC
 LIMIT %(param_5)s::INTEGER) AS anon_6) AS anon_1 ORDER BY anon_1.id DESC
 LIMIT %(param_6)s::INTEGER
--> delivery: delivery_identifier_1_idx
--> delivery: delivery_identifier_2_idx
--> delivery: delivery_identifier_3_idx
--> delivery: delivery_pkey
--> delivery: delivery_source_key_variant_key

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE (EXISTS (SELECT *
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id AND billhook.run.handler IN (SELECT %(param_1)s::VARCHAR AS anon_1 UNION SELECT coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_1)s::VARCHAR), %(param_1)s::VARCHAR) AS coalesce_1 UNION SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.renamed_to = coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_1)s::VARCHAR), %(param_1)s::VARCHAR)))) AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_2)s::INTEGER
--> billhook_handler: all rows
--> billhook_handler: billhook_handler_name_key
--> delivery: delivery_pkey
--> run: run_delivery_id_handler_key

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE (EXISTS (SELECT *
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id AND billhook.run.twin_of IS NOT NULL)) AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey
--> run: run_delivery_id_handler_key

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE (billhook.delivery.conflict_of IS NULL OR (EXISTS (SELECT *
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id))) AND (billhook.delivery.event_type != %(event_type_1)s::VARCHAR OR billhook.delivery.type_field IS NOT NULL) AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey
--> run: run_delivery_id_handler_key

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.conflict_of IS NOT NULL AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_conflict_idx

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.event_type = %(event_type_1)s::VARCHAR AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.event_type IN (%(event_type_1_1)s::VARCHAR, %(event_type_1_2)s::VARCHAR) AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_2)s::INTEGER
--> delivery: delivery_pkey

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state IN ('dead', 'quarantined') AND billhook.delivery.state = %(state_1)s::VARCHAR ORDER BY billhook.delivery.id DESC
 LIMIT %(param_2)s::INTEGER
--> delivery: delivery_failed_idx

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id > %(id_1)s::BIGINT AND billhook.delivery.id < %(id_2)s::BIGINT ORDER BY billhook.delivery.id
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id >= %(id_1)s::BIGINT AND billhook.delivery.id < %(id_2)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id IN (SELECT billhook.run.delivery_id
FROM billhook.run
WHERE (billhook.run.last_error ILIKE '%%' || %(last_error_1)s::VARCHAR || '%%' ESCAPE '/') UNION ALL SELECT other.id
FROM billhook.delivery AS other
WHERE (other.error ILIKE '%%' || %(error_1)s::VARCHAR || '%%' ESCAPE '/')) AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: all rows
--> delivery: delivery_pkey
--> run: all rows

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id IN (SELECT billhook.run.delivery_id
FROM billhook.run
WHERE (billhook.run.last_error ILIKE '%%' || %(last_error_1)s::VARCHAR || '%%' ESCAPE '/') UNION ALL SELECT other.id
FROM billhook.delivery AS other
WHERE (other.error ILIKE '%%' || %(error_1)s::VARCHAR || '%%' ESCAPE '/')) AND billhook.delivery.id IN (SELECT found.id
FROM billhook.delivery AS found
WHERE found.identifier_1 = %(identifier_1_1)s::VARCHAR UNION ALL SELECT found.id
FROM billhook.delivery AS found
WHERE found.identifier_2 = %(identifier_2_1)s::VARCHAR UNION ALL SELECT found.id
FROM billhook.delivery AS found
WHERE found.identifier_3 = %(identifier_3_1)s::VARCHAR UNION ALL SELECT found.id
FROM billhook.delivery AS found
WHERE found.source IN (WITH RECURSIVE sources (source) AS (
        SELECT (SELECT source FROM billhook.delivery WHERE TRUE ORDER BY source LIMIT 1)
        UNION ALL SELECT (
            SELECT source FROM billhook.delivery WHERE TRUE AND delivery.source > sources.source
            ORDER BY source LIMIT 1
        ) FROM sources WHERE sources.source IS NOT NULL
    ) SELECT source FROM sources WHERE source IS NOT NULL) AND found.key = %(key_1)s::VARCHAR UNION ALL SELECT found.id
FROM billhook.delivery AS found
WHERE found.id = %(id_1)s::BIGINT) ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: all rows
--> delivery: delivery_identifier_1_idx
--> delivery: delivery_identifier_2_idx
--> delivery: delivery_identifier_3_idx
--> delivery: delivery_pkey
--> delivery: delivery_source_key_variant_key
--> run: all rows

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id IN (SELECT billhook.run.delivery_id
FROM billhook.run
WHERE billhook.run.finished_at IS NOT NULL AND billhook.run.finished_at < %(finished_at_1)s::TIMESTAMP WITH TIME ZONE UNION ALL SELECT billhook.run.delivery_id
FROM billhook.run JOIN billhook.failure ON billhook.failure.run_id = billhook.run.id
WHERE billhook.failure.failed_at < %(failed_at_1)s::TIMESTAMP WITH TIME ZONE) AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey
--> failure: failure_run_id_idx
--> run: run_finished_at_idx
--> run: run_pkey

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id IN (SELECT billhook.run.delivery_id
FROM billhook.run
WHERE billhook.run.finished_at IS NOT NULL AND billhook.run.finished_at >= %(finished_at_1)s::TIMESTAMP WITH TIME ZONE AND billhook.run.state IN ('dead') UNION ALL SELECT billhook.run.delivery_id
FROM billhook.run JOIN billhook.failure ON billhook.failure.run_id = billhook.run.id
WHERE billhook.failure.failed_at >= %(failed_at_1)s::TIMESTAMP WITH TIME ZONE AND (billhook.run.state = %(state_1)s::VARCHAR OR billhook.run.state IN ('due', 'running') AND billhook.run.state = %(state_2)s::VARCHAR AND billhook.run.attempts > %(attempts_1)s::INTEGER)) AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey
--> failure: failure_run_id_idx
--> run: run_finished_at_idx
--> run: run_pkey

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id IN (SELECT billhook.run.delivery_id
FROM billhook.run
WHERE billhook.run.finished_at IS NOT NULL AND billhook.run.finished_at >= %(finished_at_1)s::TIMESTAMP WITH TIME ZONE UNION ALL SELECT billhook.run.delivery_id
FROM billhook.run JOIN billhook.failure ON billhook.failure.run_id = billhook.run.id
WHERE billhook.failure.failed_at >= %(failed_at_1)s::TIMESTAMP WITH TIME ZONE) AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey
--> failure: failure_run_id_idx
--> run: run_finished_at_idx
--> run: run_pkey

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id IN (SELECT billhook.run.delivery_id
FROM billhook.run
WHERE billhook.run.finished_at IS NOT NULL AND billhook.run.release_id = (SELECT billhook.billhook_release.id
FROM billhook.billhook_release
WHERE billhook.billhook_release.name = %(name_1)s::VARCHAR) AND billhook.run.finished_at >= (SELECT billhook.billhook_release.first_at
FROM billhook.billhook_release
WHERE billhook.billhook_release.name = %(name_1)s::VARCHAR) UNION ALL SELECT billhook.run.delivery_id
FROM billhook.run JOIN billhook.failure ON billhook.failure.run_id = billhook.run.id
WHERE billhook.failure.release_id = (SELECT billhook.billhook_release.id
FROM billhook.billhook_release
WHERE billhook.billhook_release.name = %(name_2)s::VARCHAR) AND billhook.failure.failed_at >= (SELECT billhook.billhook_release.first_at
FROM billhook.billhook_release
WHERE billhook.billhook_release.name = %(name_2)s::VARCHAR)) AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> billhook_release: billhook_release_name_key
--> delivery: delivery_pkey
--> failure: failure_run_id_idx
--> run: run_finished_at_idx
--> run: run_pkey

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id IN (SELECT billhook.run.delivery_id
FROM billhook.run JOIN billhook.failure ON billhook.failure.run_id = billhook.run.id
WHERE billhook.failure.fingerprint = %(fingerprint_1)s::VARCHAR UNION ALL SELECT billhook.run.delivery_id
FROM billhook.run
WHERE billhook.run.state IN ('dead') AND billhook.run.handler IN (SELECT (SELECT billhook.billhook_issue.subject
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.fingerprint = %(fingerprint_2)s::VARCHAR AND billhook.billhook_issue.kind = %(kind_1)s::VARCHAR) AS anon_1 UNION SELECT coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = (SELECT billhook.billhook_issue.subject
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.fingerprint = %(fingerprint_2)s::VARCHAR AND billhook.billhook_issue.kind = %(kind_1)s::VARCHAR)), (SELECT billhook.billhook_issue.subject
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.fingerprint = %(fingerprint_2)s::VARCHAR AND billhook.billhook_issue.kind = %(kind_1)s::VARCHAR)) AS coalesce_1 UNION SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.renamed_to = coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = (SELECT billhook.billhook_issue.subject
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.fingerprint = %(fingerprint_2)s::VARCHAR AND billhook.billhook_issue.kind = %(kind_1)s::VARCHAR)), (SELECT billhook.billhook_issue.subject
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.fingerprint = %(fingerprint_2)s::VARCHAR AND billhook.billhook_issue.kind = %(kind_1)s::VARCHAR)))) OR billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) ORDER BY billhook.delivery.id DESC
 LIMIT %(param_2)s::INTEGER
--> billhook_handler: all rows
--> billhook_handler: billhook_handler_name_key
--> billhook_issue: billhook_issue_pkey
--> delivery: delivery_pkey
--> failure: failure_run_id_idx
--> run: run_dead_idx
--> run: run_pkey

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.received_at < %(received_at_1)s::TIMESTAMP WITH TIME ZONE AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.received_at >= %(received_at_1)s::TIMESTAMP WITH TIME ZONE AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.source = %(source_1)s::VARCHAR AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_source_key_variant_key

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.source IN (%(source_1_1)s::VARCHAR, %(source_1_2)s::VARCHAR) AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_source_key_variant_key

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.source IN (WITH RECURSIVE sources (source) AS (
        SELECT (SELECT source FROM billhook.delivery WHERE TRUE ORDER BY source LIMIT 1)
        UNION ALL SELECT (
            SELECT source FROM billhook.delivery WHERE TRUE AND delivery.source > sources.source
            ORDER BY source LIMIT 1
        ) FROM sources WHERE sources.source IS NOT NULL
    ) SELECT source FROM sources WHERE source IS NOT NULL) AND billhook.delivery.key = %(key_1)s::VARCHAR AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey
--> delivery: delivery_source_key_variant_key

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.state = %(state_1)s::VARCHAR AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.state IN ('dead', 'quarantined') AND billhook.delivery.state = %(state_1)s::VARCHAR AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_failed_idx

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.state IN ('dead', 'quarantined') AND billhook.delivery.state = %(state_1)s::VARCHAR AND billhook.delivery.id > %(id_1)s::BIGINT AND billhook.delivery.id < %(id_2)s::BIGINT ORDER BY billhook.delivery.id
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_failed_idx

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.state IN ('planned', 'done', 'dead') AND NOT (EXISTS (SELECT *
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id AND billhook.run.handler IN (SELECT %(param_1)s::VARCHAR AS anon_1 UNION SELECT coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_1)s::VARCHAR), %(param_1)s::VARCHAR) AS coalesce_1 UNION SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.renamed_to = coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_1)s::VARCHAR), %(param_1)s::VARCHAR) UNION SELECT %(param_2)s::VARCHAR AS anon_2 UNION SELECT coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_2)s::VARCHAR), %(param_2)s::VARCHAR) AS coalesce_2 UNION SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.renamed_to = coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_2)s::VARCHAR), %(param_2)s::VARCHAR)))) AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_3)s::INTEGER
--> billhook_handler: all rows
--> billhook_handler: billhook_handler_name_key
--> delivery: delivery_pkey
--> run: run_delivery_id_handler_key

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.state IN ('planned', 'done', 'dead') AND NOT (EXISTS (SELECT *
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id AND billhook.run.handler IN (SELECT %(param_1)s::VARCHAR AS anon_1 UNION SELECT coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_1)s::VARCHAR), %(param_1)s::VARCHAR) AS coalesce_1 UNION SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.renamed_to = coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_1)s::VARCHAR), %(param_1)s::VARCHAR)))) AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_2)s::INTEGER
--> billhook_handler: all rows
--> billhook_handler: billhook_handler_name_key
--> delivery: delivery_pkey
--> run: run_delivery_id_handler_key

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received') AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_received_idx

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received', 'planned') AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_unfinished_idx

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received', 'planned') AND billhook.delivery.state = %(state_1)s::VARCHAR AND (EXISTS (SELECT *
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id AND billhook.run.state IN ('waiting', 'due') AND billhook.run.handler IN (SELECT coalesce(billhook.billhook_handler.renamed_to, billhook.billhook_handler.name) AS coalesce_1
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL UNION ALL SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL OR billhook.billhook_handler.renamed_to IN (SELECT coalesce(billhook.billhook_handler.renamed_to, billhook.billhook_handler.name) AS coalesce_1
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL)))) AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> billhook_handler: all rows
--> delivery: delivery_unfinished_idx
--> run: run_delivery_id_handler_key

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received', 'planned') AND billhook.delivery.state = %(state_1)s::VARCHAR AND NOT (EXISTS (SELECT *
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id AND billhook.run.state IN ('waiting', 'due') AND billhook.run.handler IN (SELECT coalesce(billhook.billhook_handler.renamed_to, billhook.billhook_handler.name) AS coalesce_1
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL UNION ALL SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL OR billhook.billhook_handler.renamed_to IN (SELECT coalesce(billhook.billhook_handler.renamed_to, billhook.billhook_handler.name) AS coalesce_1
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL)))) AND NOT (EXISTS (SELECT *
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id AND (billhook.run.state IN ('due', 'running') AND billhook.run.state = %(state_2)s::VARCHAR AND billhook.run.attempts > %(attempts_1)s::INTEGER OR billhook.run.state IN ('due', 'running') AND billhook.run.state = %(state_3)s::VARCHAR))) AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> billhook_handler: all rows
--> delivery: delivery_unfinished_idx
--> run: run_claim_idx
--> run: run_delivery_id_handler_key

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received', 'planned') AND billhook.delivery.state = %(state_1)s::VARCHAR AND NOT (EXISTS (SELECT *
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id AND billhook.run.state IN ('waiting', 'due') AND billhook.run.handler IN (SELECT coalesce(billhook.billhook_handler.renamed_to, billhook.billhook_handler.name) AS coalesce_1
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL UNION ALL SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL OR billhook.billhook_handler.renamed_to IN (SELECT coalesce(billhook.billhook_handler.renamed_to, billhook.billhook_handler.name) AS coalesce_1
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL)))) AND billhook.delivery.id IN (SELECT billhook.run.delivery_id
FROM billhook.run
WHERE billhook.run.state IN ('due', 'running') AND billhook.run.state = %(state_2)s::VARCHAR AND billhook.run.attempts > %(attempts_1)s::INTEGER) AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> billhook_handler: all rows
--> delivery: delivery_unfinished_idx
--> run: run_claim_idx
--> run: run_delivery_id_handler_key

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received', 'planned') AND billhook.delivery.state = %(state_1)s::VARCHAR AND NOT (EXISTS (SELECT *
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id AND billhook.run.state IN ('waiting', 'due') AND billhook.run.handler IN (SELECT coalesce(billhook.billhook_handler.renamed_to, billhook.billhook_handler.name) AS coalesce_1
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL UNION ALL SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL OR billhook.billhook_handler.renamed_to IN (SELECT coalesce(billhook.billhook_handler.renamed_to, billhook.billhook_handler.name) AS coalesce_1
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL)))) AND billhook.delivery.id IN (SELECT billhook.run.delivery_id
FROM billhook.run
WHERE billhook.run.state IN ('due', 'running') AND billhook.run.state = %(state_2)s::VARCHAR) AND NOT (EXISTS (SELECT *
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id AND billhook.run.state IN ('due', 'running') AND billhook.run.state = %(state_3)s::VARCHAR AND billhook.run.attempts > %(attempts_1)s::INTEGER)) AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> billhook_handler: all rows
--> delivery: delivery_unfinished_idx
--> run: run_claim_idx
--> run: run_delivery_id_handler_key

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received', 'planned') AND billhook.delivery.state = %(state_1)s::VARCHAR AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_unfinished_idx

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE position(%(param_1)s IN billhook.delivery.body) > %(param_2)s::INTEGER AND billhook.delivery.id < %(id_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_3)s::INTEGER
--> delivery: delivery_pkey

-- running/filters.py DeliveryFilter.ids
SELECT billhook.delivery.id
FROM billhook.delivery ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_pkey

-- running/former_names.py _write
INSERT INTO billhook.billhook_handler (name, renamed_to) VALUES (%(name)s::VARCHAR, %(renamed_to)s::VARCHAR) ON CONFLICT (name) DO UPDATE SET renamed_to = %(param_1)s::VARCHAR RETURNING billhook.billhook_handler.id

-- running/former_names.py _write
UPDATE billhook.billhook_handler SET renamed_to=%(renamed_to)s::VARCHAR WHERE billhook.billhook_handler.name = ANY (%(param_1)s::TEXT[])
--> billhook_handler: billhook_handler_name_key

-- running/former_names.py record_former_names
SELECT (SELECT max(billhook.billhook_worker.list_id) AS max_1
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.list_id IS NOT NULL AND billhook.billhook_worker.held_at IS NULL AND billhook.billhook_worker.seen_at > %(alive_since)s::TIMESTAMP WITH TIME ZONE) AS anon_1
--> billhook_worker: billhook_worker_seen_at_idx

-- running/handler_lists.py _forget_old
DELETE FROM billhook.billhook_handler_list WHERE billhook.billhook_handler_list.id <= %(id_1)s::BIGINT AND NOT (EXISTS (SELECT *
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.list_id = billhook.billhook_handler_list.id))
--> billhook_handler_list: billhook_handler_list_pkey
--> billhook_worker: all rows

-- running/handler_lists.py count_left_out
SELECT count(*) AS count_1
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received') AND NOT coalesce(billhook.delivery.event_type, %(coalesce_1)s::VARCHAR) = ANY (%(param_1)s::TEXT[])
--> delivery: delivery_received_idx

-- running/handler_lists.py count_left_out
SELECT count(*) AS count_1
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received') AND coalesce(billhook.delivery.event_type, %(coalesce_1)s::VARCHAR) = ANY (%(param_1)s::TEXT[])
--> delivery: delivery_received_idx

-- running/handler_lists.py list_number
INSERT INTO billhook.billhook_handler_list (digest, content, live_since) VALUES (%(digest)s::VARCHAR, %(content)s::VARCHAR, %(live_since)s::TIMESTAMP WITH TIME ZONE) ON CONFLICT (digest) DO NOTHING RETURNING billhook.billhook_handler_list.id

-- running/handler_lists.py list_number
SELECT billhook.billhook_handler_list.id
FROM billhook.billhook_handler_list
WHERE billhook.billhook_handler_list.digest = %(digest_1)s::VARCHAR
--> billhook_handler_list: billhook_handler_list_digest_key

-- running/handler_lists.py list_number
UPDATE billhook.billhook_handler_list SET live_since=%(live_since)s::TIMESTAMP WITH TIME ZONE WHERE billhook.billhook_handler_list.id = %(id_1)s::BIGINT AND NOT (EXISTS (SELECT *
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.list_id = %(list_id_1)s::INTEGER AND billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.list_id IS NOT NULL AND billhook.billhook_worker.seen_at > %(seen_at_1)s::TIMESTAMP WITH TIME ZONE))
--> billhook_handler_list: billhook_handler_list_pkey
--> billhook_worker: billhook_worker_seen_at_idx

-- running/handler_lists.py note_planned
UPDATE billhook.billhook_handler_list SET planned_at=%(planned_at)s::TIMESTAMP WITH TIME ZONE WHERE billhook.billhook_handler_list.id IN (SELECT billhook.billhook_handler_list.id
FROM billhook.billhook_handler_list
WHERE billhook.billhook_handler_list.id = %(id_1)s::BIGINT AND (billhook.billhook_handler_list.planned_at IS NULL OR billhook.billhook_handler_list.planned_at < %(planned_at_1)s::TIMESTAMP WITH TIME ZONE OR billhook.billhook_handler_list.planned_at > %(planned_at_2)s::TIMESTAMP WITH TIME ZONE) FOR UPDATE SKIP LOCKED)
--> billhook_handler_list: billhook_handler_list_pkey

-- running/handler_lists.py read_live_lists
SELECT billhook.billhook_handler_list.id, billhook.billhook_handler_list.content, billhook.billhook_handler_list.planned_at, billhook.billhook_handler_list.live_since, billhook.billhook_handler_list.id IN (SELECT billhook.billhook_worker.list_id
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.list_id IS NOT NULL AND billhook.billhook_worker.held_at IS NULL AND billhook.billhook_worker.seen_at > %(seen_at_1)s::TIMESTAMP WITH TIME ZONE) AS may_plan
FROM billhook.billhook_handler_list
WHERE billhook.billhook_handler_list.id IN (SELECT billhook.billhook_worker.list_id
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.list_id IS NOT NULL AND billhook.billhook_worker.seen_at > %(seen_at_2)s::TIMESTAMP WITH TIME ZONE) ORDER BY billhook.billhook_handler_list.id DESC
--> billhook_handler_list: billhook_handler_list_pkey
--> billhook_worker: billhook_worker_seen_at_idx

-- running/handler_lists.py record_lacking
SELECT billhook.billhook_handler_list.missed_names
FROM billhook.billhook_handler_list
WHERE billhook.billhook_handler_list.id = %(id_1)s::BIGINT FOR UPDATE
--> billhook_handler_list: billhook_handler_list_pkey

-- running/handler_lists.py record_lacking
UPDATE billhook.billhook_handler_list SET missed=(billhook.billhook_handler_list.missed + %(missed_1)s::INTEGER), missed_at=%(missed_at)s::TIMESTAMP WITH TIME ZONE, missed_names=%(missed_names)s::VARCHAR WHERE billhook.billhook_handler_list.id = %(id_1)s::BIGINT
--> billhook_handler_list: billhook_handler_list_pkey

-- running/handler_lists.py waits_since
SELECT billhook.delivery.received_at
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received') AND NOT coalesce(billhook.delivery.event_type, %(coalesce_1)s::VARCHAR) = ANY (%(param_1)s::TEXT[]) ORDER BY billhook.delivery.id
 LIMIT %(param_2)s::INTEGER
--> delivery: delivery_received_idx

-- running/handler_lists.py waits_since
SELECT billhook.delivery.received_at
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received') AND coalesce(billhook.delivery.event_type, %(coalesce_1)s::VARCHAR) = ANY (%(param_1)s::TEXT[]) ORDER BY billhook.delivery.id
 LIMIT %(param_2)s::INTEGER
--> delivery: delivery_received_idx

-- running/leases.py _make_due
UPDATE billhook.run SET state=%(state)s::VARCHAR, attempts=(billhook.run.attempts - %(attempts_1)s::INTEGER), due_at=%(due_at)s::TIMESTAMP WITH TIME ZONE WHERE billhook.run.id = ANY (%(param_1)s::BIGINT[])
--> run: run_pkey

-- running/leases.py _make_due
UPDATE billhook.run SET state=%(state)s::VARCHAR, due_at=%(due_at)s::TIMESTAMP WITH TIME ZONE, last_error=%(last_error)s::VARCHAR, runs_alone=%(runs_alone)s::INTEGER, uncounted_attempts=%(uncounted_attempts)s::INTEGER WHERE billhook.run.id = ANY (%(param_1)s::BIGINT[])
--> run: run_pkey

-- running/leases.py expire_leases
INSERT INTO billhook.failure (run_id, attempt, failed_at, error, fingerprint, worker, release_id) VALUES (%(run_id)s::BIGINT, %(attempt)s::INTEGER, %(failed_at)s::TIMESTAMP WITH TIME ZONE, %(error)s::VARCHAR, %(fingerprint)s::VARCHAR, %(worker)s::VARCHAR, %(release_id)s::INTEGER) RETURNING billhook.failure.id

-- running/leases.py expire_leases
SELECT billhook.run.id, billhook.run.handler, billhook.run.attempts, billhook.run.worker, billhook.run.release_id, billhook.run.queued, billhook.run.runs_alone, billhook.run.beside_others, billhook.run.uncounted_attempts, billhook.run.postponements
FROM billhook.run
WHERE billhook.run.state IN ('due', 'running') AND billhook.run.state = %(state_1)s::VARCHAR AND billhook.run.due_at <= %(due_at_1)s::TIMESTAMP WITH TIME ZONE AND NOT CAST(billhook.run.id AS TEXT) || %(param_1)s::VARCHAR || CAST(billhook.run.token AS TEXT) = ANY (%(param_2)s::TEXT[]) ORDER BY billhook.run.due_at, billhook.run.id
 LIMIT %(param_3)s::INTEGER FOR UPDATE SKIP LOCKED
--> run: run_claim_idx

-- running/leases.py expire_leases
SELECT billhook.run.id, billhook.run.handler, billhook.run.attempts, billhook.run.worker, billhook.run.release_id, billhook.run.queued, billhook.run.runs_alone, billhook.run.beside_others, billhook.run.uncounted_attempts, billhook.run.postponements
FROM billhook.run
WHERE billhook.run.state IN ('due', 'running') AND billhook.run.state = %(state_1)s::VARCHAR AND billhook.run.due_at <= %(due_at_1)s::TIMESTAMP WITH TIME ZONE AND billhook.run.delivery_id = %(delivery_id_1)s::BIGINT ORDER BY billhook.run.due_at, billhook.run.id
 LIMIT %(param_1)s::INTEGER FOR UPDATE SKIP LOCKED
--> run: run_delivery_id_handler_key

-- running/limits.py Limiter._paused_as_others
SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL AND billhook.billhook_handler.name = ANY (%(param_1)s::TEXT[])
--> billhook_handler: billhook_handler_name_key

-- running/limits.py Limiter._read
INSERT INTO billhook.billhook_handler (name) VALUES (%(name)s::VARCHAR)

-- running/limits.py Limiter._read
SELECT billhook.billhook_handler.id, billhook.billhook_handler.name, billhook.billhook_handler.paused_at, billhook.billhook_handler.paused_why, billhook.billhook_handler.paused_error, billhook.billhook_handler.failures, billhook.billhook_handler.next_start_at, billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = ANY (%(param_1)s::TEXT[])
--> billhook_handler: billhook_handler_name_key

-- running/limits.py Limiter._write
UPDATE billhook.billhook_handler SET failures=%(failures)s::INTEGER WHERE billhook.billhook_handler.id = %(id_1)s::BIGINT
--> billhook_handler: billhook_handler_pkey

-- running/limits.py Limiter._write
UPDATE billhook.billhook_handler SET next_start_at=%(next_start_at)s::TIMESTAMP WITH TIME ZONE WHERE billhook.billhook_handler.id = %(id_1)s::BIGINT
--> billhook_handler: billhook_handler_pkey

-- running/limits.py _pause
UPDATE billhook.billhook_handler SET paused_at=%(paused_at)s::TIMESTAMP WITH TIME ZONE, paused_why=%(paused_why)s::VARCHAR, paused_error=%(paused_error)s::VARCHAR WHERE billhook.billhook_handler.name = %(name_1)s::VARCHAR OR billhook.billhook_handler.renamed_to = %(renamed_to_1)s::VARCHAR
--> billhook_handler: all rows

-- running/limits.py find_paused
SELECT coalesce(billhook.billhook_handler.renamed_to, billhook.billhook_handler.name) AS name, billhook.billhook_handler.paused_at, billhook.billhook_handler.paused_why, billhook.billhook_handler.paused_error
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL
--> billhook_handler: all rows

-- running/limits.py forget_errors
SELECT billhook.billhook_handler.id
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_error = ANY (%(param_1)s::TEXT[])
--> billhook_handler: all rows

-- running/limits.py forget_errors
UPDATE billhook.billhook_handler SET paused_error=%(paused_error)s::VARCHAR WHERE billhook.billhook_handler.paused_error = ANY (%(param_1)s::TEXT[])
--> billhook_handler: all rows

-- running/limits.py pause
SELECT billhook.billhook_handler.id, billhook.billhook_handler.name, billhook.billhook_handler.paused_at, billhook.billhook_handler.paused_why, billhook.billhook_handler.paused_error, billhook.billhook_handler.failures, billhook.billhook_handler.next_start_at, billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name IN (SELECT %(param_1)s::VARCHAR AS anon_1 UNION SELECT coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_1)s::VARCHAR), %(param_1)s::VARCHAR) AS coalesce_1 UNION SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.renamed_to = coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_1)s::VARCHAR), %(param_1)s::VARCHAR))
--> billhook_handler: all rows
--> billhook_handler: billhook_handler_name_key

-- running/limits.py pause
-- running/limits.py pause_renamed
INSERT INTO billhook.billhook_handler (name) VALUES (%(name)s::VARCHAR) RETURNING billhook.billhook_handler.id

-- running/limits.py pause_renamed
SELECT coalesce(billhook.billhook_handler.renamed_to, billhook.billhook_handler.name) AS own, billhook.billhook_handler.id, billhook.billhook_handler.name, billhook.billhook_handler.paused_at, billhook.billhook_handler.paused_why, billhook.billhook_handler.paused_error, billhook.billhook_handler.failures, billhook.billhook_handler.next_start_at, billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE coalesce(billhook.billhook_handler.renamed_to, billhook.billhook_handler.name) = ANY (%(param_1)s::TEXT[])
--> billhook_handler: all rows

-- running/limits.py resume
UPDATE billhook.billhook_handler SET paused_at=%(paused_at)s::TIMESTAMP WITH TIME ZONE, paused_why=%(paused_why)s::VARCHAR, paused_error=%(paused_error)s::VARCHAR, failures=%(failures)s::INTEGER WHERE billhook.billhook_handler.name IN (SELECT %(param_1)s::VARCHAR AS anon_1 UNION SELECT coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_1)s::VARCHAR), %(param_1)s::VARCHAR) AS coalesce_1 UNION SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.renamed_to = coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_1)s::VARCHAR), %(param_1)s::VARCHAR)) AND billhook.billhook_handler.paused_at IS NOT NULL
--> billhook_handler: all rows
--> billhook_handler: billhook_handler_name_key

-- running/lost_workers.py _ran
SELECT anon_1.worker, billhook.run.handler
FROM (SELECT billhook.failure.id AS id, billhook.failure.run_id AS run_id, billhook.failure.attempt AS attempt, billhook.failure.failed_at AS failed_at, billhook.failure.error AS error, billhook.failure.traceback AS traceback, billhook.failure.duration_seconds AS duration_seconds, billhook.failure.retried AS retried, billhook.failure.fingerprint AS fingerprint, billhook.failure.place AS place, billhook.failure.worker AS worker, billhook.failure.release_id AS release_id
FROM billhook.failure ORDER BY billhook.failure.id DESC
 LIMIT %(param_1)s::INTEGER) AS anon_1 JOIN billhook.run ON anon_1.run_id = billhook.run.id
WHERE anon_1.error = %(error_1)s::VARCHAR AND anon_1.worker = ANY (%(param_2)s::TEXT[])
--> failure: failure_pkey
--> run: run_pkey

-- running/lost_workers.py _ran
SELECT billhook.run.worker, billhook.run.handler
FROM billhook.run
WHERE billhook.run.state IN ('due', 'running') AND billhook.run.state = %(state_1)s::VARCHAR AND billhook.run.queued = %(queued_1)s::INTEGER AND billhook.run.worker = ANY (%(param_1)s::TEXT[])
--> run: run_claim_idx

-- running/lost_workers.py read_lost_beside
SELECT billhook.failure.worker, billhook.run.handler
FROM billhook.failure JOIN billhook.run ON billhook.run.id = billhook.failure.run_id
WHERE billhook.failure.error = %(error_1)s::VARCHAR ORDER BY billhook.failure.id DESC
 LIMIT %(param_1)s::INTEGER
--> failure: failure_pkey
--> run: run_pkey

-- running/lost_workers.py read_lost_workers
SELECT billhook.billhook_worker.owner, billhook.billhook_worker.host, billhook.billhook_worker.handlers, billhook.billhook_worker.started_at, billhook.billhook_worker.seen_at, billhook.billhook_worker.died_at
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.engine != %(engine_1)s::VARCHAR AND billhook.billhook_worker.seen_at > %(seen_at_1)s::TIMESTAMP WITH TIME ZONE AND (billhook.billhook_worker.died_at IS NOT NULL OR billhook.billhook_worker.seen_at < %(seen_at_2)s::TIMESTAMP WITH TIME ZONE)
--> billhook_worker: billhook_worker_seen_at_idx

-- running/lost_workers.py read_lost_workers
SELECT max(billhook.billhook_worker.seen_at) AS max_1
FROM billhook.billhook_worker
--> billhook_worker: billhook_worker_seen_at_idx

-- running/ordering.py _release_next_of_several_names
SELECT keys.handler, keys.order_key, billhook.run.id, billhook.run.state, billhook.run.delivery_id
FROM unnest(%(keys_handler)s::TEXT[], %(keys_order_key)s::TEXT[]) AS keys(handler, order_key) JOIN billhook.run ON billhook.run.id = (SELECT own.id
FROM billhook.run AS own
WHERE own.handler = keys.handler AND own.order_key = keys.order_key AND own.state IN ('waiting', 'due', 'running') ORDER BY own.state, own.delivery_id
 LIMIT 1)
--> run: run_order_idx
--> run: run_pkey

-- running/ordering.py _release_next_of_several_names
UPDATE billhook.run SET state=%(state)s::VARCHAR, due_at=CASE WHEN (billhook.run.not_before > %(param_1)s::TIMESTAMP WITH TIME ZONE) THEN billhook.run.not_before ELSE %(param_1)s::TIMESTAMP WITH TIME ZONE END WHERE billhook.run.id = ANY (%(param_2)s::BIGINT[]) AND billhook.run.state IN ('waiting') RETURNING billhook.run.delivery_id
--> run: run_pkey

-- running/ordering.py release_next
UPDATE billhook.run SET state=%(state)s::VARCHAR, due_at=CASE WHEN (billhook.run.not_before > %(now)s::TIMESTAMP WITH TIME ZONE) THEN billhook.run.not_before ELSE %(now)s::TIMESTAMP WITH TIME ZONE END WHERE billhook.run.id IN (SELECT (SELECT own.id
FROM billhook.run AS own
WHERE own.handler = keys.handler AND own.order_key = keys.order_key AND own.state IN ('waiting', 'due', 'running') ORDER BY own.state, own.delivery_id
 LIMIT 1) AS anon_1
FROM unnest(%(keys_handler)s::TEXT[], %(keys_order_key)s::TEXT[]) AS keys(handler, order_key)) AND billhook.run.state IN ('waiting') RETURNING billhook.run.delivery_id
--> run: run_order_idx
--> run: run_pkey

-- running/ordering.py waiting_keys
SELECT DISTINCT billhook.run.handler, billhook.run.order_key
FROM billhook.run
WHERE billhook.run.order_key IS NOT NULL AND billhook.run.state IN ('waiting', 'due', 'running') AND billhook.run.state = %(state_1)s::VARCHAR AND billhook.run.handler = ANY (%(param_1)s::TEXT[])
--> run: run_order_idx

-- running/planning.py change_runs
UPDATE billhook.run SET handler=%(handler)s::VARCHAR, state=%(state)s::VARCHAR, attempts=%(attempts)s::INTEGER, due_at=%(due_at)s::TIMESTAMP WITH TIME ZONE, not_before=%(not_before)s::TIMESTAMP WITH TIME ZONE, worker=%(worker)s::VARCHAR, release_id=%(release_id)s::INTEGER, queued=%(queued)s::INTEGER, token=(billhook.run.token + %(token_1)s::INTEGER), last_error=%(last_error)s::VARCHAR, finished_at=%(finished_at)s::TIMESTAMP WITH TIME ZONE, order_key=%(order_key)s::VARCHAR, newest_only=%(newest_only)s::INTEGER, newest_key=%(newest_key)s::VARCHAR, identity=%(identity)s::VARCHAR, twin_of=%(twin_of)s::BIGINT, runs_alone=%(runs_alone)s::INTEGER, beside_others=%(beside_others)s::INTEGER, uncounted_attempts=%(uncounted_attempts)s::INTEGER, postponements=%(postponements)s::INTEGER, replays=(billhook.run.replays + CASE WHEN (billhook.run.state IN ('waiting', 'due', 'running')) THEN %(param_1)s::INTEGER ELSE %(param_2)s::INTEGER END), started_at=%(started_at)s::TIMESTAMP WITH TIME ZONE, duration_seconds=%(duration_seconds)s WHERE billhook.run.id = %(id_1)s::BIGINT
--> run: run_pkey

-- running/planning.py write_plans
UPDATE billhook.delivery SET event_type=coalesce(anon_1.event_type, billhook.delivery.event_type), state=anon_1.new_state, error=anon_1.reason, identifier_1=anon_1.identifier_1, identifier_2=anon_1.identifier_2, identifier_3=anon_1.identifier_3 FROM json_to_recordset(CAST(%(plans)s::VARCHAR AS JSON)) AS anon_1(delivery_id BIGINT, new_state TEXT, reason TEXT, event_type TEXT, identifier_1 TEXT, identifier_2 TEXT, identifier_3 TEXT) WHERE billhook.delivery.id = anon_1.delivery_id AND billhook.delivery.state IN ('received') RETURNING billhook.delivery.id, billhook.delivery.key, (SELECT count(*) AS count_1
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL) AS anon_2
--> billhook_handler: all rows
--> delivery: delivery_received_idx

-- running/planning.py write_plans
UPDATE billhook.delivery SET state=anon_1.new_state, error=anon_1.reason, identifier_1=anon_1.identifier_1, identifier_2=anon_1.identifier_2, identifier_3=anon_1.identifier_3 FROM json_to_recordset(CAST(%(plans)s::VARCHAR AS JSON)) AS anon_1(delivery_id BIGINT, new_state TEXT, reason TEXT, event_type TEXT, identifier_1 TEXT, identifier_2 TEXT, identifier_3 TEXT) WHERE billhook.delivery.id = anon_1.delivery_id AND billhook.delivery.state IN ('planned') RETURNING billhook.delivery.id, billhook.delivery.key, (SELECT count(*) AS count_1
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL) AS anon_2
--> billhook_handler: all rows
--> delivery: delivery_unfinished_idx

-- running/planning.py write_plans
UPDATE billhook.delivery SET state=anon_1.new_state, error=anon_1.reason, identifier_1=anon_1.identifier_1, identifier_2=anon_1.identifier_2, identifier_3=anon_1.identifier_3 FROM json_to_recordset(CAST(%(plans)s::VARCHAR AS JSON)) AS anon_1(delivery_id BIGINT, new_state TEXT, reason TEXT, event_type TEXT, identifier_1 TEXT, identifier_2 TEXT, identifier_3 TEXT) WHERE billhook.delivery.id = anon_1.delivery_id AND billhook.delivery.state IN ('received') RETURNING billhook.delivery.id, billhook.delivery.key, (SELECT count(*) AS count_1
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.paused_at IS NOT NULL) AS anon_2
--> billhook_handler: all rows
--> delivery: delivery_received_idx

-- running/postponing.py put_off_runs
UPDATE billhook.run SET due_at=CASE WHEN (billhook.run.due_at > %(param_1)s::TIMESTAMP WITH TIME ZONE AND (billhook.run.not_before IS NULL OR billhook.run.due_at > billhook.run.not_before)) THEN billhook.run.due_at ELSE %(param_1)s::TIMESTAMP WITH TIME ZONE END, not_before=%(not_before)s::TIMESTAMP WITH TIME ZONE WHERE billhook.run.id = ANY (%(param_2)s::BIGINT[]) AND billhook.run.state IN ('due', 'waiting')
--> run: run_pkey

-- running/readings.py end_readings
DELETE FROM billhook.run WHERE billhook.run.id = ANY (%(run_ids)s::BIGINT[]) AND CAST(billhook.run.id AS TEXT) || %(param_1)s::VARCHAR || CAST(billhook.run.token AS TEXT) = ANY (%(leases)s::TEXT[]) AND (billhook.run.state IN ('running') OR billhook.run.state IN ('due') AND (billhook.run.runs_alone = 1 OR billhook.run.queued = 1)) RETURNING billhook.run.id, billhook.run.token, billhook.run.attempts, billhook.run.handler, billhook.run.order_key
--> run: run_pkey

-- running/readings.py mark_alone
UPDATE billhook.run SET runs_alone=%(runs_alone)s::INTEGER WHERE billhook.run.id = ANY (%(run_ids)s::BIGINT[]) AND CAST(billhook.run.id AS TEXT) || %(param_1)s::VARCHAR || CAST(billhook.run.token AS TEXT) = ANY (%(leases)s::TEXT[]) AND billhook.run.state = %(state_1)s::VARCHAR
--> run: run_pkey

-- running/runs.py _write_results
UPDATE billhook.run SET state=anon_1.new_state, attempts=anon_1.attempt, due_at=CASE WHEN (billhook.run.not_before > coalesce(anon_1.retry_at, billhook.run.due_at)) THEN billhook.run.not_before ELSE coalesce(anon_1.retry_at, billhook.run.due_at) END, not_before=coalesce(CASE WHEN (billhook.run.not_before > anon_1.postponed_to) THEN billhook.run.not_before ELSE anon_1.postponed_to END, billhook.run.not_before), queued=0, last_error=anon_1.error, finished_at=CASE WHEN (anon_1.ended_at < (SELECT billhook.billhook_watermark.finished_at
FROM billhook.billhook_watermark)) THEN (SELECT billhook.billhook_watermark.finished_at
FROM billhook.billhook_watermark) ELSE anon_1.ended_at END, runs_alone=0, beside_others=0, uncounted_attempts=CASE WHEN (billhook.run.uncounted_attempts + anon_1.is_uncounted > anon_1.attempt) THEN anon_1.attempt ELSE billhook.run.uncounted_attempts + anon_1.is_uncounted END, postponements=(billhook.run.postponements + CASE WHEN (anon_1.postponed_to IS NULL) THEN 0 ELSE 1 END), started_at=coalesce(anon_1.called_at, billhook.run.started_at), duration_seconds=anon_1.seconds FROM json_to_recordset(CAST(%(results)s::VARCHAR AS JSON)) AS anon_1(run_id BIGINT, fencing_token INTEGER, attempt INTEGER, new_state TEXT, error TEXT, retry_at TIMESTAMP WITH TIME ZONE, postponed_to TIMESTAMP WITH TIME ZONE, ended_at TIMESTAMP WITH TIME ZONE, is_uncounted INTEGER, called_at TIMESTAMP WITH TIME ZONE, seconds FLOAT) WHERE billhook.run.id = anon_1.run_id AND billhook.run.token = anon_1.fencing_token AND (billhook.run.state IN ('running') OR billhook.run.state IN ('due') AND (billhook.run.runs_alone = 1 OR billhook.run.queued = 1)) RETURNING billhook.run.id, billhook.run.token, billhook.run.handler, billhook.run.order_key, billhook.run.newest_only
--> billhook_watermark: all rows
--> run: run_claim_idx

-- running/runs.py finish_deliveries
UPDATE billhook.delivery SET state=CASE WHEN (EXISTS (SELECT *
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id AND billhook.run.state = %(state_1)s::VARCHAR)) THEN %(param_1)s::VARCHAR ELSE %(param_2)s::VARCHAR END WHERE billhook.delivery.id = ANY (%(delivery_ids)s::BIGINT[]) AND billhook.delivery.state = %(state_2)s::VARCHAR AND NOT (EXISTS (SELECT *
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id AND billhook.run.state IN ('waiting', 'due', 'running')))
--> delivery: delivery_unfinished_idx
--> run: run_dead_idx
--> run: run_delivery_id_handler_key

-- running/runs.py insert_runs
INSERT INTO billhook.run (delivery_id, handler, state, due_at, token, attempts, worker, release_id, queued, started_at, finished_at, last_error, order_key, newest_only, newest_key, identity, twin_of) SELECT delivery_id, handler, state, due_at, token, attempts, worker, release_id, queued, started_at, finished_at, last_error, order_key, newest_only, newest_key, identity, twin_of FROM json_populate_recordset(json_populate_record(NULL::billhook.run, CAST(%(shared)s AS json)), CAST(%(rows)s AS json)) RETURNING id, delivery_id, handler

-- running/runs.py settle
INSERT INTO billhook.failure (run_id, attempt, failed_at, error, traceback, duration_seconds, retried, fingerprint, place, worker, release_id) VALUES (%(run_id)s::BIGINT, %(attempt)s::INTEGER, %(failed_at)s::TIMESTAMP WITH TIME ZONE, %(error)s::VARCHAR, %(traceback)s::VARCHAR, %(duration_seconds)s, %(retried)s::INTEGER, %(fingerprint)s::VARCHAR, %(place)s::VARCHAR, %(worker)s::VARCHAR, %(release_id)s::INTEGER)

-- running/runs.py settle
INSERT INTO billhook.failure (run_id, attempt, failed_at, error, traceback, duration_seconds, retried, fingerprint, place, worker, release_id) VALUES (%(run_id)s::BIGINT, %(attempt)s::INTEGER, %(failed_at)s::TIMESTAMP WITH TIME ZONE, %(error)s::VARCHAR, %(traceback)s::VARCHAR, %(duration_seconds)s, %(retried)s::INTEGER, %(fingerprint)s::VARCHAR, %(place)s::VARCHAR, %(worker)s::VARCHAR, %(release_id)s::INTEGER) RETURNING billhook.failure.id

-- running/superseding.py _discard
UPDATE billhook.run SET state=%(state)s::VARCHAR, last_error=%(why)s::VARCHAR, finished_at=CASE WHEN (%(now)s::TIMESTAMP WITH TIME ZONE < (SELECT billhook.billhook_watermark.finished_at
FROM billhook.billhook_watermark)) THEN (SELECT billhook.billhook_watermark.finished_at
FROM billhook.billhook_watermark) ELSE %(now)s::TIMESTAMP WITH TIME ZONE END WHERE billhook.run.handler = %(of_handler)s::VARCHAR AND billhook.run.order_key = %(of_key)s::VARCHAR AND billhook.run.state IN ('waiting', 'due', 'running') AND billhook.run.state IN ('waiting', 'due') AND billhook.run.delivery_id = ANY (%(older)s::BIGINT[]) RETURNING billhook.run.delivery_id, billhook.run.handler
--> billhook_watermark: all rows
--> run: run_order_idx

-- running/superseding.py _discard
UPDATE billhook.run SET state=%(state)s::VARCHAR, last_error=%(why)s::VARCHAR, finished_at=CASE WHEN (%(now)s::TIMESTAMP WITH TIME ZONE < (SELECT billhook.billhook_watermark.finished_at
FROM billhook.billhook_watermark)) THEN (SELECT billhook.billhook_watermark.finished_at
FROM billhook.billhook_watermark) ELSE %(now)s::TIMESTAMP WITH TIME ZONE END WHERE billhook.run.handler = ANY (%(of_names)s::TEXT[]) AND billhook.run.order_key = %(of_key)s::VARCHAR AND billhook.run.state IN ('waiting', 'due', 'running') AND billhook.run.state IN ('waiting', 'due') AND billhook.run.delivery_id = ANY (%(older)s::BIGINT[]) RETURNING billhook.run.delivery_id, billhook.run.handler
--> billhook_watermark: all rows
--> run: run_delivery_id_handler_key

-- running/superseding.py _newer_by_key
SELECT anon_1.delivery_id, anon_1.newest_key
FROM (SELECT run_1.delivery_id AS delivery_id, run_1.newest_key AS newest_key
FROM billhook.run AS run_1
WHERE run_1.handler = %(of_handler)s::VARCHAR AND run_1.order_key = %(of_key)s::VARCHAR AND run_1.newest_key IS NOT NULL AND run_1.state IN ('succeeded') ORDER BY run_1.newest_key DESC, run_1.delivery_id DESC
 LIMIT 1) AS anon_1 UNION ALL SELECT anon_2.delivery_id, anon_2.newest_key
FROM (SELECT run_2.delivery_id AS delivery_id, run_2.newest_key AS newest_key
FROM billhook.run AS run_2
WHERE run_2.handler = %(of_handler)s::VARCHAR AND run_2.order_key = %(of_key)s::VARCHAR AND run_2.newest_key IS NOT NULL AND run_2.state IN ('succeeded') AND run_2.newest_key = %(newest_key_1)s::VARCHAR ORDER BY run_2.delivery_id DESC
 LIMIT 1) AS anon_2
--> run: run_newest_idx

-- running/superseding.py _newer_by_key
SELECT anon_1.delivery_id, anon_1.newest_key
FROM (SELECT run_1.delivery_id AS delivery_id, run_1.newest_key AS newest_key
FROM billhook.run AS run_1
WHERE run_1.handler = ANY (%(of_names)s::TEXT[]) AND run_1.order_key = %(of_key)s::VARCHAR AND run_1.newest_key IS NOT NULL AND run_1.state IN ('succeeded') ORDER BY run_1.newest_key DESC, run_1.delivery_id DESC
 LIMIT 1) AS anon_1 UNION ALL SELECT anon_2.delivery_id, anon_2.newest_key
FROM (SELECT run_2.delivery_id AS delivery_id, run_2.newest_key AS newest_key
FROM billhook.run AS run_2
WHERE run_2.handler = ANY (%(of_names)s::TEXT[]) AND run_2.order_key = %(of_key)s::VARCHAR AND run_2.newest_key IS NOT NULL AND run_2.state IN ('succeeded') AND run_2.newest_key = %(newest_key_1)s::VARCHAR ORDER BY run_2.delivery_id DESC
 LIMIT 1) AS anon_2 UNION ALL SELECT anon_3.delivery_id, anon_3.newest_key
FROM (SELECT run_3.delivery_id AS delivery_id, run_3.newest_key AS newest_key
FROM billhook.run AS run_3
WHERE run_3.handler = ANY (%(of_names)s::TEXT[]) AND run_3.order_key = %(of_key)s::VARCHAR AND run_3.newest_key IS NOT NULL AND run_3.state IN ('succeeded') ORDER BY run_3.delivery_id DESC
 LIMIT 1) AS anon_3
--> run: run_newest_idx

-- running/superseding.py _newer_by_key
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(delivery_ids)s::BIGINT[]) ORDER BY billhook.delivery.id FOR NO KEY UPDATE OF delivery SKIP LOCKED
--> delivery: delivery_pkey

-- running/superseding.py _newer_by_key
SELECT billhook.run.delivery_id, coalesce(billhook.run.newest_key, %(coalesce_2)s::VARCHAR) AS coalesce_1, billhook.run.newest_only = %(newest_only_1)s::INTEGER AND billhook.run.uncounted_attempts = billhook.run.postponements AS anon_1
FROM billhook.run
WHERE billhook.run.handler = %(of_handler)s::VARCHAR AND billhook.run.order_key = %(of_key)s::VARCHAR AND billhook.run.state IN ('waiting', 'due', 'running') AND billhook.run.state IN ('waiting', 'due')
--> run: run_order_idx

-- running/superseding.py _newer_by_key
SELECT billhook.run.delivery_id, coalesce(billhook.run.newest_key, %(coalesce_2)s::VARCHAR) AS coalesce_1, billhook.run.newest_only = %(newest_only_1)s::INTEGER AND billhook.run.uncounted_attempts = billhook.run.postponements AS anon_1
FROM billhook.run
WHERE billhook.run.handler = ANY (%(of_names)s::TEXT[]) AND billhook.run.order_key = %(of_key)s::VARCHAR AND billhook.run.state IN ('waiting', 'due', 'running') AND billhook.run.state IN ('waiting', 'due')
--> run: run_order_idx

-- running/superseding.py discard_superseded
SELECT billhook.run.delivery_id, (SELECT max(newest.delivery_id) AS max_1
FROM billhook.run AS newest
WHERE newest.handler = %(of_handler)s::VARCHAR AND newest.order_key = %(of_key)s::VARCHAR AND newest.state IN ('waiting', 'due', 'running')) AS newest
FROM billhook.run JOIN billhook.delivery ON billhook.delivery.id = billhook.run.delivery_id
WHERE billhook.run.handler = %(of_handler)s::VARCHAR AND billhook.run.order_key = %(of_key)s::VARCHAR AND billhook.run.state IN ('waiting', 'due', 'running') AND billhook.run.state IN ('waiting', 'due') AND billhook.run.newest_only = %(newest_only_1)s::INTEGER AND billhook.run.uncounted_attempts = billhook.run.postponements AND billhook.run.delivery_id < (SELECT max(newest.delivery_id) AS max_1
FROM billhook.run AS newest
WHERE newest.handler = %(of_handler)s::VARCHAR AND newest.order_key = %(of_key)s::VARCHAR AND newest.state IN ('waiting', 'due', 'running')) FOR NO KEY UPDATE OF delivery SKIP LOCKED
--> delivery: delivery_pkey
--> run: run_order_idx

-- running/transaction.py InboxTransaction._mark_running
UPDATE billhook.run SET state=%(state)s::VARCHAR, attempts=(billhook.run.attempts + %(attempts_1)s::INTEGER), due_at=%(leased_until)s::TIMESTAMP WITH TIME ZONE, not_before=%(not_before)s::TIMESTAMP WITH TIME ZONE, worker=%(worker)s::VARCHAR, release_id=%(release_id)s::INTEGER, queued=%(is_queued)s::INTEGER, token=(billhook.run.token + %(token_1)s::INTEGER), beside_others=%(beside_others)s::INTEGER, started_at=%(now)s::TIMESTAMP WITH TIME ZONE, duration_seconds=%(duration_seconds)s WHERE billhook.run.id = ANY (%(run_ids)s::BIGINT[])
--> run: run_pkey

-- running/transaction.py InboxTransaction.lock
-- tables/locks.py lock_conflicts
-- tables/locks.py lock_limits
-- tables/locks.py lock_order
SELECT pg_advisory_xact_lock(%(pg_advisory_xact_lock_2)s::INTEGER) AS pg_advisory_xact_lock_1

-- running/transaction.py InboxTransaction.lock
-- tables/locks.py lock_deliveries
SELECT billhook.delivery.id
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(delivery_ids)s::BIGINT[]) ORDER BY billhook.delivery.id FOR NO KEY UPDATE
--> delivery: delivery_pkey

-- running/transaction.py InboxTransaction.mark_not_alone
SELECT billhook.run.id
FROM billhook.run
WHERE billhook.run.id = ANY (%(run_ids)s::BIGINT[]) AND CAST(billhook.run.id AS TEXT) || %(param_1)s::VARCHAR || CAST(billhook.run.token AS TEXT) = ANY (%(leases)s::TEXT[]) AND billhook.run.state = %(state_1)s::VARCHAR AND billhook.run.runs_alone = %(runs_alone_1)s::INTEGER AND billhook.run.beside_others = %(beside_others_1)s::INTEGER FOR UPDATE SKIP LOCKED
--> run: run_claim_idx

-- running/transaction.py InboxTransaction.mark_not_alone
UPDATE billhook.run SET beside_others=%(beside_others)s::INTEGER WHERE billhook.run.id = ANY (%(param_1)s::BIGINT[])
--> run: run_alone_idx

-- running/transaction.py InboxTransaction.release
UPDATE billhook.run SET state=%(state)s::VARCHAR, attempts=(billhook.run.attempts - %(attempts_1)s::INTEGER), due_at=%(now)s::TIMESTAMP WITH TIME ZONE, queued=%(queued)s::INTEGER, beside_others=%(beside_others)s::INTEGER WHERE billhook.run.id = ANY (%(run_ids)s::BIGINT[]) AND CAST(billhook.run.id AS TEXT) || %(param_1)s::VARCHAR || CAST(billhook.run.token AS TEXT) = ANY (%(leases)s::TEXT[]) AND billhook.run.state = %(state_1)s::VARCHAR
--> run: run_claim_idx

-- running/transaction.py InboxTransaction.release_orphaned
UPDATE billhook.run SET state=%(state)s::VARCHAR, attempts=(billhook.run.attempts - %(attempts_1)s::INTEGER), due_at=%(now)s::TIMESTAMP WITH TIME ZONE, queued=%(queued)s::INTEGER, beside_others=%(beside_others)s::INTEGER WHERE billhook.run.state IN ('due', 'running') AND billhook.run.state = %(state_1)s::VARCHAR AND billhook.run.worker = %(worker_1)s::VARCHAR AND NOT CAST(billhook.run.id AS TEXT) || %(param_1)s::VARCHAR || CAST(billhook.run.token AS TEXT) = ANY (%(leases)s::TEXT[])
--> run: run_claim_idx

-- running/transaction.py InboxTransaction.renew
UPDATE billhook.run SET due_at=%(due_at)s::TIMESTAMP WITH TIME ZONE WHERE billhook.run.id = ANY (%(run_ids)s::BIGINT[]) AND CAST(billhook.run.id AS TEXT) || %(param_1)s::VARCHAR || CAST(billhook.run.token AS TEXT) = ANY (%(leases)s::TEXT[]) AND billhook.run.state = %(state_1)s::VARCHAR RETURNING billhook.run.id, billhook.run.token
--> run: run_claim_idx

-- running/transaction.py count_skipped
SELECT count(*) AS count_1
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[]) AND billhook.delivery.state IN ('received')
--> delivery: delivery_received_idx

-- running/transaction.py count_skipped
SELECT count(*) AS count_1
FROM billhook.run
WHERE billhook.run.id = ANY (%(run_ids)s::BIGINT[]) AND CAST(billhook.run.id AS TEXT) || %(param_1)s::VARCHAR || CAST(billhook.run.token AS TEXT) = ANY (%(leases)s::TEXT[]) AND billhook.run.state = %(state_1)s::VARCHAR
--> run: run_claim_idx

-- running/unread.py RoundRobin.choose
WITH RECURSIVE found (id, event_type, source, number, of_type) AS (
    SELECT CAST(0 AS bigint), CAST(%(after_type)s::VARCHAR AS text), CAST(%(after_source)s::VARCHAR AS text), 0, %(of_each)s::INTEGER
    UNION ALL
    SELECT here.id, here.event_type, here.source, found.number + 1,
        CASE WHEN here.event_type = found.event_type AND here.source = found.source
            THEN found.of_type + 1 ELSE 1 END
    FROM found JOIN billhook.delivery AS here ON here.id = coalesce((
    SELECT id FROM billhook.delivery WHERE state IN ('received') AND event_type = found.event_type AND source = found.source AND id > found.id AND found.of_type < %(of_each)s::INTEGER ORDER BY event_type, source, id LIMIT 1
), (
    SELECT id FROM billhook.delivery WHERE state IN ('received') AND event_type = found.event_type AND source > found.source ORDER BY event_type, source, id LIMIT 1
), (
    SELECT id FROM billhook.delivery WHERE state IN ('received') AND event_type > found.event_type ORDER BY event_type, source, id LIMIT 1
))
    WHERE found.number < %(at_most)s::INTEGER
) SELECT stored.id, stored.source, stored.key, stored.event_type, stored.body, stored.headers, stored.signed_at, stored.received_at, stored.variant, stored.sent_as, stored.type_field FROM found JOIN billhook.delivery AS stored ON stored.id = found.id ORDER BY found.number
--> delivery: delivery_pkey
--> delivery: delivery_received_idx

-- running/unread.py first_of_each
WITH RECURSIVE found (id, event_type, source, number, of_type) AS (
    SELECT CAST(0 AS bigint), CAST(%(after_type)s::VARCHAR AS text), CAST(%(after_source)s::VARCHAR AS text), 0, %(of_each)s::INTEGER
    UNION ALL
    SELECT here.id, here.event_type, here.source, found.number + 1,
        CASE WHEN here.event_type = found.event_type AND here.source = found.source
            THEN found.of_type + 1 ELSE 1 END
    FROM found JOIN billhook.delivery AS here ON here.id = coalesce((
    SELECT id FROM billhook.delivery WHERE state IN ('received') AND event_type = found.event_type AND source = found.source AND id > found.id AND found.of_type < %(of_each)s::INTEGER ORDER BY event_type, source, id LIMIT 1
), (
    SELECT id FROM billhook.delivery WHERE state IN ('received') AND event_type = found.event_type AND source > found.source ORDER BY event_type, source, id LIMIT 1
), (
    SELECT id FROM billhook.delivery WHERE state IN ('received') AND event_type > found.event_type ORDER BY event_type, source, id LIMIT 1
))
    WHERE found.number < %(at_most)s::INTEGER
) SELECT stored.id, stored.received_at, stored.event_type FROM found JOIN billhook.delivery AS stored ON stored.id = found.id ORDER BY found.number
--> delivery: delivery_pkey
--> delivery: delivery_received_idx

-- running/workers.py expects_worker
SELECT billhook.billhook_worker.engine
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.stopped_at IS NOT NULL AND billhook.billhook_worker.engine != %(engine_1)s::VARCHAR ORDER BY billhook.billhook_worker.stopped_at DESC
 LIMIT %(param_1)s::INTEGER
--> billhook_worker: all rows

-- running/workers.py last_seen_before
SELECT max(coalesce(billhook.billhook_worker.died_at, billhook.billhook_worker.seen_at)) AS max_1
FROM billhook.billhook_worker
WHERE (billhook.billhook_worker.died_at <= %(died_at_1)s::TIMESTAMP WITH TIME ZONE OR coalesce(billhook.billhook_worker.died_at, billhook.billhook_worker.seen_at) <= %(coalesce_1)s::TIMESTAMP WITH TIME ZONE) AND billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.engine != %(engine_1)s::VARCHAR
--> billhook_worker: all rows

-- running/workers.py read_sharing
SELECT billhook.billhook_worker.owner
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.engine = %(engine_1)s::VARCHAR AND billhook.billhook_worker.list_id = %(list_id_1)s::INTEGER AND billhook.billhook_worker.died_at IS NULL AND billhook.billhook_worker.seen_at > %(seen_at_1)s::TIMESTAMP WITH TIME ZONE
--> billhook_worker: billhook_worker_seen_at_idx

-- running/workers.py record_stop
DELETE FROM billhook.billhook_worker WHERE billhook.billhook_worker.owner = %(owner_1)s::VARCHAR AND billhook.billhook_worker.engine = %(engine_1)s::VARCHAR
--> billhook_worker: billhook_worker_pkey

-- running/workers.py record_stop
UPDATE billhook.billhook_worker SET list_id=%(list_id)s::INTEGER, stopped_at=%(stopped_at)s::TIMESTAMP WITH TIME ZONE WHERE billhook.billhook_worker.owner = %(owner_1)s::VARCHAR
--> billhook_worker: billhook_worker_pkey

-- running/workers.py record_stopping
UPDATE billhook.billhook_worker SET list_id=%(list_id)s::INTEGER WHERE billhook.billhook_worker.owner = %(owner_1)s::VARCHAR
--> billhook_worker: billhook_worker_pkey

-- running/workers.py record_worker
DELETE FROM billhook.billhook_worker WHERE billhook.billhook_worker.owner IN (SELECT billhook.billhook_worker.owner
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.seen_at < %(seen_at_1)s::TIMESTAMP WITH TIME ZONE FOR UPDATE SKIP LOCKED)
--> billhook_worker: billhook_worker_pkey
--> billhook_worker: billhook_worker_seen_at_idx

-- running/workers.py record_worker
INSERT INTO billhook.billhook_worker (owner, engine, handlers, started_at, host, pid, pid_space, pid_ticks, threads, release_id, list_id, seen_at, stopped_at, died_at) VALUES (%(owner)s::VARCHAR, %(engine)s::VARCHAR, %(handlers)s::INTEGER, %(started_at)s::TIMESTAMP WITH TIME ZONE, %(host)s::VARCHAR, %(pid)s::INTEGER, %(pid_space)s::VARCHAR, %(pid_ticks)s::BIGINT, %(threads)s::INTEGER, %(release_id)s::INTEGER, %(list_id)s::INTEGER, %(seen_at)s::TIMESTAMP WITH TIME ZONE, NULL, NULL) ON CONFLICT (owner) DO UPDATE SET handlers = %(param_1)s::INTEGER, release_id = %(param_2)s::INTEGER, list_id = %(param_3)s::INTEGER, seen_at = %(param_4)s::TIMESTAMP WITH TIME ZONE, stopped_at = NULL, died_at = NULL

-- running/workers.py release_number
INSERT INTO billhook.billhook_release (name, first_at) VALUES (%(name)s::VARCHAR, %(first_at)s::TIMESTAMP WITH TIME ZONE) ON CONFLICT (name) DO NOTHING RETURNING billhook.billhook_release.id

-- running/workers.py release_number
SELECT billhook.billhook_release.id
FROM billhook.billhook_release
WHERE billhook.billhook_release.name = %(name_1)s::VARCHAR
--> billhook_release: billhook_release_name_key

-- running/workers.py worker_rows
SELECT billhook.billhook_worker.owner, billhook.billhook_worker.engine, billhook.billhook_worker.handlers, billhook.billhook_worker.started_at, billhook.billhook_worker.host, billhook.billhook_worker.pid, billhook.billhook_worker.pid_space, billhook.billhook_worker.pid_ticks, billhook.billhook_worker.threads, billhook.billhook_worker.seen_at, billhook.billhook_worker.stopped_at, billhook.billhook_worker.died_at, billhook.billhook_worker.held_at, billhook.billhook_worker.held_why, billhook.billhook_release.name AS release
FROM billhook.billhook_worker LEFT OUTER JOIN billhook.billhook_release ON billhook.billhook_release.id = billhook.billhook_worker.release_id
WHERE billhook.billhook_worker.engine != %(engine_1)s::VARCHAR ORDER BY billhook.billhook_worker.started_at, billhook.billhook_worker.owner
--> billhook_release: billhook_release_pkey
--> billhook_worker: all rows

-- running/workers.py worker_times
SELECT max(billhook.billhook_worker.seen_at) FILTER (WHERE billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.engine != %(engine_1)s::VARCHAR) AS anon_1, max(billhook.billhook_worker.stopped_at) AS max_1
FROM billhook.billhook_worker
--> billhook_worker: all rows

-- storing/ingest.py _insert
INSERT INTO billhook.delivery (source, key, variant, event_type, type_field, conflict_of, headers, state, error, signed_at, received_at, digest, body) VALUES (%(source)s::VARCHAR, %(key)s::VARCHAR, %(variant)s::VARCHAR, %(event_type)s::VARCHAR, %(type_field)s::VARCHAR, %(conflict_of)s::BIGINT, %(headers)s::VARCHAR, %(state)s::VARCHAR, %(error)s::VARCHAR, %(signed_at)s::TIMESTAMP WITH TIME ZONE, %(received_at)s::TIMESTAMP WITH TIME ZONE, %(digest)s, %(body)s) RETURNING billhook.delivery.id

-- storing/ingest.py _of_keys
SELECT billhook.delivery.key, billhook.delivery.variant, billhook.delivery.id, coalesce(billhook.delivery.sent_as, billhook.delivery.event_type) AS coalesce_1, billhook.delivery.digest, billhook.delivery.error, billhook.delivery.type_field, billhook.delivery.also_sent_as
FROM billhook.delivery
WHERE billhook.delivery.source = %(source_1)s::VARCHAR AND billhook.delivery.key = ANY (%(param_1)s::TEXT[])
--> delivery: delivery_source_key_variant_key

-- storing/ingest.py _store_others
UPDATE billhook.delivery SET also_sent_as=%(also_sent_as)s::VARCHAR, error=%(error)s::VARCHAR WHERE billhook.delivery.id = %(id_1)s::BIGINT
--> delivery: delivery_pkey

-- tables/handler_names.py present_names
SELECT billhook.billhook_handler.name, billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.renamed_to IS NOT NULL
--> billhook_handler: all rows

-- tables/locks.py lock_counts
SELECT pg_advisory_xact_lock((1668183155::bigint << 32) + tableoid::bigint) AS pg_advisory_xact_lock_1
FROM billhook.billhook_watermark
--> billhook_watermark: all rows

-- tables/locks.py lock_order
SELECT pg_advisory_xact_lock(%(pg_advisory_xact_lock_2)s::INTEGER) AS pg_advisory_xact_lock_1
WHERE EXISTS (SELECT billhook.run.id
FROM billhook.run
WHERE billhook.run.delivery_id = ANY (%(delivery_ids)s::BIGINT[]) AND billhook.run.order_key IS NOT NULL)
--> run: run_delivery_id_handler_key

-- tables/locks.py try_to_lock_counts
SELECT pg_try_advisory_xact_lock((1668183155::bigint << 32) + tableoid::bigint) AS pg_try_advisory_xact_lock_1
FROM billhook.billhook_watermark
--> billhook_watermark: all rows

-- watching/backlog_pace.py _oldest_unread_at
SELECT billhook.delivery.received_at
FROM billhook.delivery
WHERE billhook.delivery.state IN ('received') ORDER BY billhook.delivery.id
 LIMIT %(param_1)s::INTEGER
--> delivery: delivery_received_idx

-- watching/backlog_pace.py _within_limit
SELECT billhook.delivery.received_at
FROM billhook.delivery
WHERE billhook.delivery.id <= (SELECT max(billhook.delivery.id) AS max_1
FROM billhook.delivery) - %(param_1)s::BIGINT ORDER BY billhook.delivery.id DESC
 LIMIT %(param_2)s::INTEGER
--> delivery: delivery_pkey

-- watching/backlog_pace.py _within_limit
SELECT billhook.run.finished_at
FROM billhook.run
WHERE billhook.run.finished_at >= %(finished_at_1)s::TIMESTAMP WITH TIME ZONE AND billhook.run.finished_at <= %(finished_at_2)s::TIMESTAMP WITH TIME ZONE ORDER BY billhook.run.finished_at DESC
 LIMIT %(param_1)s::INTEGER OFFSET %(param_2)s::INTEGER
--> run: run_finished_at_idx

-- watching/backlog_pace.py first_untried_at
SELECT CASE WHEN (anon_2.not_before > billhook.delivery.received_at) THEN anon_2.not_before ELSE billhook.delivery.received_at END AS anon_1
FROM (SELECT billhook.run.delivery_id AS delivery_id, billhook.run.not_before AS not_before
FROM billhook.run
WHERE billhook.run.state IN ('due', 'running') AND billhook.run.state = %(state_1)s::VARCHAR AND billhook.run.handler = %(handler_1)s::VARCHAR AND billhook.run.due_at <= %(due_at_1)s::TIMESTAMP WITH TIME ZONE AND billhook.run.attempts = %(attempts_1)s::INTEGER ORDER BY billhook.run.due_at
 LIMIT %(param_1)s::INTEGER) AS anon_2, billhook.delivery
WHERE billhook.delivery.id = anon_2.delivery_id
--> delivery: delivery_pkey
--> run: run_claim_idx

-- watching/backlog_pace.py grows
SELECT count(*) AS count_1
FROM billhook.delivery
WHERE billhook.delivery.id > (SELECT max(billhook.delivery.id) AS max_1
FROM billhook.delivery) - %(param_1)s::BIGINT AND billhook.delivery.received_at >= %(received_at_1)s::TIMESTAMP WITH TIME ZONE AND billhook.delivery.received_at <= %(received_at_2)s::TIMESTAMP WITH TIME ZONE AND billhook.delivery.conflict_of IS NULL
--> delivery: delivery_pkey

-- watching/backlog_pace.py grows
SELECT count(distinct(finished.delivery_id)) AS count_1
FROM (SELECT billhook.run.delivery_id AS delivery_id
FROM billhook.run
WHERE billhook.run.finished_at >= %(finished_at_1)s::TIMESTAMP WITH TIME ZONE AND billhook.run.finished_at <= %(finished_at_2)s::TIMESTAMP WITH TIME ZONE ORDER BY billhook.run.finished_at DESC
 LIMIT %(param_1)s::INTEGER) AS finished
WHERE NOT (EXISTS (SELECT run_1.id
FROM billhook.run AS run_1
WHERE run_1.delivery_id = finished.delivery_id AND (run_1.state = ANY (%(param_2)s::TEXT[]) OR run_1.state = %(state_1)s::VARCHAR AND run_1.due_at <= %(due_at_1)s::TIMESTAMP WITH TIME ZONE) AND NOT run_1.handler = ANY (%(param_3)s::TEXT[])))
--> run: run_delivery_id_handler_key
--> run: run_finished_at_idx

-- watching/deaths.py lost_before
SELECT billhook.billhook_worker.owner
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.engine != %(engine_1)s::VARCHAR AND (billhook.billhook_worker.died_at IS NOT NULL OR billhook.billhook_worker.host = %(host_1)s::VARCHAR AND (billhook.billhook_worker.pid_space IS DISTINCT FROM %(pid_space_1)s::VARCHAR OR billhook.billhook_worker.pid_space IS NULL)) AND billhook.billhook_worker.owner != %(owner_1)s::VARCHAR AND billhook.billhook_worker.seen_at > %(seen_at_1)s::TIMESTAMP WITH TIME ZONE
 LIMIT %(param_1)s::INTEGER
--> billhook_worker: billhook_worker_seen_at_idx

-- watching/deaths.py record_death_of_child
SELECT billhook.billhook_worker.owner
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.pid_space = %(pid_space_1)s::VARCHAR AND billhook.billhook_worker.pid = %(pid_1)s::INTEGER AND billhook.billhook_worker.seen_at >= %(seen_at_1)s::TIMESTAMP WITH TIME ZONE
--> billhook_worker: billhook_worker_seen_at_idx

-- watching/deaths.py record_death_of_child
UPDATE billhook.billhook_worker SET died_at=%(died_at)s::TIMESTAMP WITH TIME ZONE WHERE billhook.billhook_worker.pid_space = %(pid_space_1)s::VARCHAR AND billhook.billhook_worker.pid = %(pid_1)s::INTEGER AND billhook.billhook_worker.seen_at >= %(seen_at_1)s::TIMESTAMP WITH TIME ZONE AND billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.engine != %(engine_1)s::VARCHAR AND billhook.billhook_worker.died_at IS NULL
--> billhook_worker: billhook_worker_seen_at_idx

-- watching/deaths.py record_deaths
DELETE FROM billhook.billhook_worker WHERE billhook.billhook_worker.owner IN (SELECT billhook.billhook_worker.owner
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.died_at IS NOT NULL ORDER BY billhook.billhook_worker.seen_at DESC
 LIMIT ALL OFFSET %(param_1)s::INTEGER FOR UPDATE SKIP LOCKED)
--> billhook_worker: billhook_worker_pkey
--> billhook_worker: billhook_worker_seen_at_idx

-- watching/deaths.py record_deaths
SELECT billhook.billhook_worker.owner, billhook.billhook_worker.started_at, billhook.billhook_worker.seen_at, billhook.billhook_worker.pid, billhook.billhook_worker.pid_ticks
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.engine != %(engine_1)s::VARCHAR AND billhook.billhook_worker.died_at IS NULL AND billhook.billhook_worker.pid_space = %(pid_space_1)s::VARCHAR ORDER BY billhook.billhook_worker.owner
--> billhook_worker: billhook_worker_pkey

-- watching/deaths.py record_deaths
UPDATE billhook.billhook_worker SET died_at=%(died_at)s::TIMESTAMP WITH TIME ZONE WHERE billhook.billhook_worker.owner = %(owner_1)s::VARCHAR AND billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.engine != %(engine_1)s::VARCHAR AND billhook.billhook_worker.died_at IS NULL
--> billhook_worker: billhook_worker_pkey

-- watching/disagreements.py _processes
SELECT billhook.billhook_release.name, billhook.billhook_handler_list.id, billhook.billhook_handler_list.content, billhook.billhook_handler_list.live_since
FROM billhook.billhook_worker JOIN billhook.billhook_handler_list ON billhook.billhook_handler_list.id = billhook.billhook_worker.list_id LEFT OUTER JOIN billhook.billhook_release ON billhook.billhook_release.id = billhook.billhook_worker.release_id
WHERE billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.seen_at > %(seen_at_1)s::TIMESTAMP WITH TIME ZONE AND billhook.billhook_worker.held_at IS NULL ORDER BY billhook.billhook_handler_list.id DESC, billhook.billhook_worker.started_at
--> billhook_handler_list: billhook_handler_list_pkey
--> billhook_release: billhook_release_pkey
--> billhook_worker: billhook_worker_seen_at_idx

-- watching/disagreements.py _unhandled
SELECT anon_1.received_at, anon_1.state, EXISTS (SELECT billhook.run.id
FROM billhook.run
WHERE billhook.run.delivery_id = anon_1.id) AS anon_2
FROM (SELECT billhook.delivery.id AS id, billhook.delivery.received_at AS received_at, billhook.delivery.state AS state
FROM billhook.delivery
WHERE billhook.delivery.event_type = %(event_type_1)s::VARCHAR ORDER BY billhook.delivery.id DESC
 LIMIT %(param_1)s::INTEGER) AS anon_1 ORDER BY anon_1.id DESC
--> delivery: delivery_event_type_id_idx
--> run: run_delivery_id_handler_key

-- watching/disagreements.py read_gone
SELECT billhook.billhook_handler_list.content
FROM billhook.billhook_handler_list
WHERE billhook.billhook_handler_list.planned_at > %(planned_at_1)s::TIMESTAMP WITH TIME ZONE ORDER BY billhook.billhook_handler_list.id DESC
 LIMIT %(param_1)s::INTEGER
--> billhook_handler_list: billhook_handler_list_pkey

-- watching/disagreements.py read_lacking
SELECT billhook.billhook_handler_list.missed, billhook.billhook_handler_list.missed_names, billhook.billhook_handler_list.missed_at
FROM billhook.billhook_handler_list
WHERE billhook.billhook_handler_list.missed > %(missed_1)s::INTEGER AND billhook.billhook_handler_list.missed_at > %(missed_at_1)s::TIMESTAMP WITH TIME ZONE ORDER BY billhook.billhook_handler_list.id
--> billhook_handler_list: billhook_handler_list_pkey

-- watching/handler_backlogs.py _rates
SELECT anon_1.handler, count(*) AS count_1, min(anon_1.finished_at) AS min_1
FROM (SELECT billhook.run.handler AS handler, billhook.run.finished_at AS finished_at
FROM billhook.run
WHERE billhook.run.finished_at > %(finished_at_1)s::TIMESTAMP WITH TIME ZONE AND billhook.run.finished_at <= %(finished_at_2)s::TIMESTAMP WITH TIME ZONE ORDER BY billhook.run.finished_at DESC
 LIMIT %(param_1)s::INTEGER) AS anon_1 GROUP BY anon_1.handler
--> run: run_finished_at_idx

-- watching/handler_backlogs.py _rates
SELECT min(billhook.billhook_worker.started_at) AS min_1
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.engine != %(engine_1)s::VARCHAR AND billhook.billhook_worker.seen_at > %(seen_at_1)s::TIMESTAMP WITH TIME ZONE AND billhook.billhook_worker.seen_at <= %(seen_at_2)s::TIMESTAMP WITH TIME ZONE
--> billhook_worker: billhook_worker_seen_at_idx

-- watching/handler_backlogs.py read_handler_backlogs
SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.next_start_at > %(next_start_at_1)s::TIMESTAMP WITH TIME ZONE
--> billhook_handler: all rows

-- watching/handler_backlogs.py read_handler_backlogs
WITH RECURSIVE due (handler) AS (
        SELECT (SELECT handler FROM billhook.run WHERE state = 'due' ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM billhook.run WHERE state = 'due' AND run.handler > due.handler
            ORDER BY handler LIMIT 1
        ) FROM due WHERE due.handler IS NOT NULL
    ), running (handler) AS (
        SELECT (SELECT handler FROM billhook.run WHERE state = 'running' ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM billhook.run WHERE state = 'running' AND run.handler > running.handler
            ORDER BY handler LIMIT 1
        ) FROM running WHERE running.handler IS NOT NULL
    ), ordered (handler) AS (
        SELECT (SELECT handler FROM billhook.run WHERE order_key IS NOT NULL AND state IN ('waiting', 'due', 'running') ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM billhook.run WHERE order_key IS NOT NULL AND state IN ('waiting', 'due', 'running') AND run.handler > ordered.handler
            ORDER BY handler LIMIT 1
        ) FROM ordered WHERE ordered.handler IS NOT NULL
    ), dead (handler) AS (
        SELECT (SELECT handler FROM billhook.run WHERE state IN ('dead') ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM billhook.run WHERE state IN ('dead') AND run.handler > dead.handler
            ORDER BY handler LIMIT 1
        ) FROM dead WHERE dead.handler IS NOT NULL
    ) SELECT 'due' AS state, handler, (
    SELECT count(*) FROM (
        SELECT 1 FROM billhook.run WHERE state = 'due' AND run.handler = due.handler AND due_at <= %(now)s::TIMESTAMP WITH TIME ZONE LIMIT %(at_most)s
    ) AS counted
) AS number, (SELECT due_at FROM billhook.run WHERE state = 'due' AND run.handler = due.handler ORDER BY due_at LIMIT 1) AS since FROM due WHERE handler IS NOT NULL UNION ALL SELECT 'retrying' AS state, handler, (
    SELECT count(*) FROM (
        SELECT 1 FROM billhook.run WHERE state = 'due' AND run.handler = due.handler AND due_at > %(now)s::TIMESTAMP WITH TIME ZONE LIMIT %(at_most)s
    ) AS counted
) AS number, (SELECT due_at FROM billhook.run WHERE state = 'due' AND run.handler = due.handler ORDER BY due_at DESC LIMIT 1) AS since FROM due WHERE handler IS NOT NULL UNION ALL SELECT 'put off' AS state, handler, (
    SELECT count(*) FROM (
        SELECT 1 FROM billhook.run WHERE state = 'due' AND run.handler = due.handler AND FALSE LIMIT %(at_most)s
    ) AS counted
) AS number, (
    SELECT not_before FROM billhook.run WHERE state = 'due' AND run.handler = due.handler ORDER BY due_at DESC LIMIT 1
) AS since FROM due WHERE handler IS NOT NULL UNION ALL SELECT 'running' AS state, handler, (
    SELECT count(*) FROM (
        SELECT 1 FROM billhook.run WHERE state = 'running' AND run.handler = running.handler AND queued = 0 LIMIT %(at_most)s
    ) AS counted
) AS number, NULL AS since FROM running WHERE handler IS NOT NULL UNION ALL SELECT 'queued' AS state, handler, (
    SELECT count(*) FROM (
        SELECT 1 FROM billhook.run WHERE state = 'running' AND run.handler = running.handler AND queued = 1 LIMIT %(at_most)s
    ) AS counted
) AS number, NULL AS since FROM running WHERE handler IS NOT NULL UNION ALL SELECT 'waiting' AS state, handler, (
    SELECT count(*) FROM (
        SELECT 1 FROM billhook.run WHERE order_key IS NOT NULL AND state IN ('waiting', 'due', 'running') AND run.handler = ordered.handler AND state = 'waiting' LIMIT %(at_most)s
    ) AS counted
) AS number, NULL AS since FROM ordered WHERE handler IS NOT NULL UNION ALL SELECT 'dead' AS state, handler, (
    SELECT count(*) FROM (
        SELECT 1 FROM billhook.run WHERE state IN ('dead') AND run.handler = dead.handler AND TRUE LIMIT %(at_most)s
    ) AS counted
) AS number, NULL AS since FROM dead WHERE handler IS NOT NULL
--> run: run_claim_idx
--> run: run_dead_idx
--> run: run_order_idx

-- watching/issue_hours.py by_hour
SELECT billhook.billhook_count.cause, billhook.billhook_count.hour, billhook.billhook_count.number
FROM billhook.billhook_count
WHERE billhook.billhook_count.what = %(what_1)s::VARCHAR AND billhook.billhook_count.hour >= %(hour_1)s::TIMESTAMP WITH TIME ZONE AND billhook.billhook_count.cause = ANY (%(param_1)s::TEXT[])
--> billhook_count: billhook_count_pkey

-- watching/issue_hours.py by_hour
SELECT billhook.billhook_issue.fingerprint, (SELECT CAST(json_object_agg(by_hour.hour, by_hour.number) AS TEXT) AS json_object_agg_1
FROM (SELECT to_char(timezone(%(timezone_1)s::VARCHAR, newest.failed_at), %(to_char_1)s::VARCHAR) AS hour, count(*) AS number
FROM (SELECT billhook.failure.failed_at AS failed_at
FROM billhook.failure
WHERE billhook.failure.fingerprint = billhook.billhook_issue.fingerprint AND billhook.failure.id > coalesce((SELECT latest.id
FROM (SELECT billhook.failure.id AS id, billhook.failure.failed_at AS failed_at
FROM billhook.failure ORDER BY billhook.failure.id DESC
 LIMIT %(param_1)s::INTEGER) AS latest
WHERE latest.failed_at < %(failed_at_1)s::TIMESTAMP WITH TIME ZONE
 LIMIT %(param_2)s::INTEGER), %(coalesce_1)s::INTEGER) ORDER BY billhook.failure.id DESC
 LIMIT %(param_3)s::INTEGER) AS newest
WHERE newest.failed_at >= %(failed_at_2)s::TIMESTAMP WITH TIME ZONE GROUP BY hour) AS by_hour) AS anon_1
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.fingerprint = ANY (%(param_4)s::TEXT[])
--> billhook_issue: billhook_issue_pkey
--> failure: failure_fingerprint_idx
--> failure: failure_pkey

-- watching/issue_updates.py _is_over
SELECT DISTINCT billhook.run.id, billhook.run.delivery_id
FROM billhook.run JOIN billhook.failure ON billhook.failure.run_id = billhook.run.id
WHERE billhook.failure.fingerprint = %(fingerprint_1)s::VARCHAR AND (billhook.run.state = %(state_1)s::VARCHAR OR billhook.run.state IN ('due', 'running') AND billhook.run.attempts > %(attempts_1)s::INTEGER)
 LIMIT %(param_1)s::INTEGER
--> failure: failure_run_id_idx
--> run: run_pkey

-- watching/issue_updates.py _is_over
SELECT billhook.delivery.id, billhook.delivery.event_type, billhook.delivery.error, billhook.delivery.received_at
FROM billhook.delivery
WHERE billhook.delivery.state IN ('dead', 'quarantined') AND billhook.delivery.state = %(state_1)s::VARCHAR ORDER BY billhook.delivery.id DESC
 LIMIT %(most)s OFFSET %(param_1)s::INTEGER
--> delivery: delivery_failed_idx

-- watching/issue_updates.py _open
INSERT INTO billhook.billhook_issue (fingerprint, kind, subject, title, place, state, opened_at, changed_at, who, why, snoozed_until, snoozed_more, notified) VALUES (%(fingerprint)s::VARCHAR, %(kind)s::VARCHAR, %(subject)s::VARCHAR, %(title)s::VARCHAR, %(place)s::VARCHAR, %(state)s::VARCHAR, %(opened_at)s::TIMESTAMP WITH TIME ZONE, %(changed_at)s::TIMESTAMP WITH TIME ZONE, %(who)s::VARCHAR, %(why)s::VARCHAR, %(snoozed_until)s::TIMESTAMP WITH TIME ZONE, %(snoozed_more)s::INTEGER, %(notified)s::INTEGER) ON CONFLICT DO NOTHING

-- watching/issue_updates.py _open
UPDATE billhook.billhook_issue SET title=%(title)s::VARCHAR, place=%(place)s::VARCHAR, state=%(state)s::VARCHAR, opened_at=%(opened_at)s::TIMESTAMP WITH TIME ZONE, changed_at=%(changed_at)s::TIMESTAMP WITH TIME ZONE, who=%(who)s::VARCHAR, why=%(why)s::VARCHAR, snoozed_until=%(snoozed_until)s::TIMESTAMP WITH TIME ZONE, snoozed_more=%(snoozed_more)s::INTEGER, notified=%(notified)s::INTEGER WHERE billhook.billhook_issue.fingerprint = %(fingerprint_1)s::VARCHAR AND billhook.billhook_issue.changed_at = %(changed_at_1)s::TIMESTAMP WITH TIME ZONE
--> billhook_issue: billhook_issue_pkey

-- watching/issue_updates.py update_issues
DELETE FROM billhook.billhook_count WHERE billhook.billhook_count.what = %(what_1)s::VARCHAR AND billhook.billhook_count.cause = ANY (%(param_1)s::TEXT[])
--> billhook_count: billhook_count_pkey

-- watching/issue_updates.py update_issues
DELETE FROM billhook.billhook_issue WHERE billhook.billhook_issue.fingerprint = ANY (%(param_1)s::TEXT[]) AND billhook.billhook_issue.changed_at < %(changed_at_1)s::TIMESTAMP WITH TIME ZONE RETURNING billhook.billhook_issue.fingerprint
--> billhook_issue: billhook_issue_pkey

-- watching/issue_updates.py update_issues
SELECT billhook.billhook_issue.fingerprint, billhook.billhook_issue.kind, billhook.billhook_issue.subject, billhook.billhook_issue.title, billhook.billhook_issue.place, billhook.billhook_issue.state, billhook.billhook_issue.opened_at, billhook.billhook_issue.changed_at, billhook.billhook_issue.who, billhook.billhook_issue.why, billhook.billhook_issue.snoozed_until, billhook.billhook_issue.snoozed_more, billhook.billhook_issue.notified
FROM billhook.billhook_issue
--> billhook_issue: all rows

-- watching/issue_updates.py update_issues
UPDATE billhook.billhook_issue SET state=%(state)s::VARCHAR, changed_at=%(changed_at)s::TIMESTAMP WITH TIME ZONE, who=%(who)s::VARCHAR, why=%(why)s::VARCHAR, snoozed_until=%(snoozed_until)s::TIMESTAMP WITH TIME ZONE, snoozed_more=%(snoozed_more)s::INTEGER WHERE billhook.billhook_issue.fingerprint = ANY (%(param_1)s::TEXT[]) AND (billhook.billhook_issue.state = ANY (%(param_2)s::TEXT[]) OR billhook.billhook_issue.snoozed_until <= %(snoozed_until_1)s::TIMESTAMP WITH TIME ZONE)
--> billhook_issue: billhook_issue_pkey

-- watching/issues.py _counted
SELECT billhook.billhook_count.hour, billhook.billhook_count.number, billhook.billhook_count.last_at
FROM billhook.billhook_count
WHERE billhook.billhook_count.what = %(what_1)s::VARCHAR AND billhook.billhook_count.cause = %(cause_1)s::VARCHAR
--> billhook_count: billhook_count_pkey

-- watching/issues.py _counted
SELECT billhook.run.delivery_id, NULL AS anon_1
FROM billhook.run
WHERE billhook.run.state IN ('dead') AND billhook.run.handler IN (SELECT %(param_1)s::VARCHAR AS anon_2 UNION SELECT coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_1)s::VARCHAR), %(param_1)s::VARCHAR) AS coalesce_1 UNION SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.renamed_to = coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_1)s::VARCHAR), %(param_1)s::VARCHAR)) ORDER BY billhook.run.finished_at DESC
 LIMIT %(param_2)s::INTEGER
--> billhook_handler: all rows
--> billhook_handler: billhook_handler_name_key
--> run: run_dead_idx

-- watching/issues.py _counted
SELECT billhook.run.delivery_id, billhook.failure.error
FROM billhook.run JOIN billhook.failure ON billhook.failure.run_id = billhook.run.id
WHERE billhook.failure.fingerprint = %(fingerprint_1)s::VARCHAR ORDER BY billhook.failure.id DESC
 LIMIT %(param_1)s::INTEGER
--> failure: failure_fingerprint_idx
--> run: run_pkey

-- watching/issues.py _counted
SELECT billhook.run.id, billhook.run.delivery_id
FROM billhook.run JOIN billhook.failure ON billhook.failure.run_id = billhook.run.id
WHERE billhook.failure.fingerprint = %(fingerprint_1)s::VARCHAR AND billhook.run.state IN ('dead', 'waiting', 'due', 'running')
 LIMIT %(param_1)s::INTEGER
--> failure: failure_run_id_idx
--> run: run_pkey

-- watching/issues.py _counted
SELECT count(*) AS count_1, (SELECT billhook.failure.failed_at
FROM billhook.failure
WHERE billhook.failure.fingerprint = %(fingerprint_1)s::VARCHAR ORDER BY billhook.failure.id
 LIMIT %(param_1)s::INTEGER) AS anon_1, (SELECT billhook.failure.failed_at
FROM billhook.failure
WHERE billhook.failure.fingerprint = %(fingerprint_1)s::VARCHAR ORDER BY billhook.failure.id DESC
 LIMIT %(param_1)s::INTEGER) AS anon_2, count(distinct(billhook.failure.run_id)) AS count_2
FROM billhook.failure
WHERE billhook.failure.fingerprint = %(fingerprint_1)s::VARCHAR
--> failure: failure_fingerprint_idx

-- watching/issues.py _counted
SELECT count(*) AS count_1, min(billhook.run.finished_at) AS min_1, max(billhook.run.finished_at) AS max_1, count(*) AS count_2
FROM billhook.run
WHERE billhook.run.state IN ('dead') AND billhook.run.handler IN (SELECT %(param_1)s::VARCHAR AS anon_1 UNION SELECT coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_1)s::VARCHAR), %(param_1)s::VARCHAR) AS coalesce_1 UNION SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.renamed_to = coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_1)s::VARCHAR), %(param_1)s::VARCHAR))
--> billhook_handler: all rows
--> billhook_handler: billhook_handler_name_key
--> run: run_dead_idx

-- watching/issues.py _delivery_ids
SELECT anon_1.delivery_id
FROM (SELECT DISTINCT anon_2.delivery_id AS delivery_id
FROM (SELECT DISTINCT billhook.run.id AS id, billhook.run.delivery_id AS delivery_id
FROM billhook.run JOIN billhook.failure ON billhook.failure.run_id = billhook.run.id
WHERE billhook.failure.fingerprint = %(fingerprint_1)s::VARCHAR AND (billhook.run.state = %(state_1)s::VARCHAR OR billhook.run.state IN ('due', 'running') AND billhook.run.attempts > %(attempts_1)s::INTEGER)) AS anon_2) AS anon_1
WHERE anon_1.delivery_id > %(delivery_id_1)s::BIGINT ORDER BY anon_1.delivery_id
 LIMIT %(param_1)s::INTEGER
--> failure: failure_run_id_idx
--> run: run_pkey

-- watching/issues.py _with_numbers
SELECT billhook.delivery.id, billhook.delivery.identifier_1, billhook.delivery.identifier_2, billhook.delivery.identifier_3
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[])
--> delivery: delivery_pkey

-- watching/issues.py change_issue
UPDATE billhook.billhook_issue SET state=%(state)s::VARCHAR, changed_at=%(changed_at)s::TIMESTAMP WITH TIME ZONE, who=%(who)s::VARCHAR, why=%(why)s::VARCHAR, snoozed_until=%(snoozed_until)s::TIMESTAMP WITH TIME ZONE, snoozed_more=%(snoozed_more)s::INTEGER WHERE billhook.billhook_issue.fingerprint = %(fingerprint_1)s::VARCHAR
--> billhook_issue: billhook_issue_pkey

-- watching/issues.py clear_texts
SELECT DISTINCT billhook.run.handler
FROM billhook.run
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[])
--> run: run_delivery_id_handler_key

-- watching/issues.py clear_texts
SELECT billhook.billhook_issue.fingerprint
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.kind = %(kind_1)s::VARCHAR AND (billhook.billhook_issue.subject IN (SELECT billhook.delivery.event_type
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_1)s::BIGINT[])) OR billhook.billhook_issue.subject IN (SELECT billhook.delivery.sent_as
FROM billhook.delivery
WHERE billhook.delivery.id = ANY (%(param_2)s::BIGINT[])))
--> billhook_issue: all rows
--> delivery: delivery_pkey

-- watching/issues.py clear_texts
SELECT billhook.failure.fingerprint
FROM billhook.failure JOIN billhook.run ON billhook.run.id = billhook.failure.run_id
WHERE billhook.run.delivery_id = ANY (%(param_1)s::BIGINT[])
--> failure: failure_run_id_idx
--> run: run_pkey

-- watching/issues.py count_issues
SELECT billhook.billhook_issue.state, count(*) AS count_1
FROM billhook.billhook_issue GROUP BY billhook.billhook_issue.state
--> billhook_issue: all rows

-- watching/issues.py count_replayable
SELECT anon_1.state, count(*) AS count_1
FROM (SELECT DISTINCT billhook.run.id AS id, billhook.run.delivery_id AS delivery_id, billhook.run.state AS state
FROM billhook.run JOIN billhook.failure ON billhook.failure.run_id = billhook.run.id
WHERE billhook.failure.fingerprint = %(fingerprint_1)s::VARCHAR AND (billhook.run.state = %(state_1)s::VARCHAR OR billhook.run.state IN ('due', 'running') AND billhook.run.attempts > %(attempts_1)s::INTEGER)) AS anon_1 GROUP BY anon_1.state
--> failure: failure_run_id_idx
--> run: run_pkey

-- watching/issues.py issue_ids
SELECT billhook.billhook_issue.fingerprint
FROM billhook.billhook_issue
WHERE substr(billhook.billhook_issue.fingerprint, %(substr_1)s::INTEGER, %(substr_2)s::INTEGER) = %(substr_3)s::VARCHAR ORDER BY billhook.billhook_issue.fingerprint
--> billhook_issue: billhook_issue_pkey

-- watching/issues.py list_issues
SELECT billhook.billhook_issue.fingerprint, billhook.billhook_issue.kind, billhook.billhook_issue.subject, billhook.billhook_issue.title, billhook.billhook_issue.place, billhook.billhook_issue.state, billhook.billhook_issue.opened_at, billhook.billhook_issue.changed_at, billhook.billhook_issue.who, billhook.billhook_issue.why, billhook.billhook_issue.snoozed_until, billhook.billhook_issue.snoozed_more, billhook.billhook_issue.notified
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.fingerprint = ANY (%(param_1)s::TEXT[]) ORDER BY billhook.billhook_issue.state = %(state_1)s::VARCHAR, billhook.billhook_issue.changed_at DESC
 LIMIT %(param_2)s::INTEGER
--> billhook_issue: billhook_issue_pkey

-- watching/issues.py list_issues
SELECT billhook.billhook_issue.fingerprint, billhook.billhook_issue.kind, billhook.billhook_issue.subject, billhook.billhook_issue.title, billhook.billhook_issue.place, billhook.billhook_issue.state, billhook.billhook_issue.opened_at, billhook.billhook_issue.changed_at, billhook.billhook_issue.who, billhook.billhook_issue.why, billhook.billhook_issue.snoozed_until, billhook.billhook_issue.snoozed_more, billhook.billhook_issue.notified
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.state = ANY (%(param_1)s::TEXT[]) AND billhook.billhook_issue.fingerprint = ANY (%(param_2)s::TEXT[]) ORDER BY billhook.billhook_issue.state = %(state_1)s::VARCHAR, billhook.billhook_issue.changed_at DESC
 LIMIT %(param_3)s::INTEGER
--> billhook_issue: billhook_issue_pkey

-- watching/issues.py list_issues
SELECT billhook.billhook_issue.fingerprint, billhook.billhook_issue.kind, billhook.billhook_issue.subject, billhook.billhook_issue.title, billhook.billhook_issue.place, billhook.billhook_issue.state, billhook.billhook_issue.opened_at, billhook.billhook_issue.changed_at, billhook.billhook_issue.who, billhook.billhook_issue.why, billhook.billhook_issue.snoozed_until, billhook.billhook_issue.snoozed_more, billhook.billhook_issue.notified
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.state = ANY (%(param_1)s::TEXT[]) ORDER BY billhook.billhook_issue.state = %(state_1)s::VARCHAR, billhook.billhook_issue.changed_at DESC
 LIMIT %(param_2)s::INTEGER
--> billhook_issue: all rows

-- watching/issues.py list_issues
SELECT billhook.billhook_issue.fingerprint, billhook.billhook_issue.kind, billhook.billhook_issue.subject, billhook.billhook_issue.title, billhook.billhook_issue.place, billhook.billhook_issue.state, billhook.billhook_issue.opened_at, billhook.billhook_issue.changed_at, billhook.billhook_issue.who, billhook.billhook_issue.why, billhook.billhook_issue.snoozed_until, billhook.billhook_issue.snoozed_more, billhook.billhook_issue.notified
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.subject IN (SELECT %(param_1)s::VARCHAR AS anon_1 UNION SELECT coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_1)s::VARCHAR), %(param_1)s::VARCHAR) AS coalesce_1 UNION SELECT billhook.billhook_handler.name
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.renamed_to = coalesce((SELECT billhook.billhook_handler.renamed_to
FROM billhook.billhook_handler
WHERE billhook.billhook_handler.name = %(param_1)s::VARCHAR), %(param_1)s::VARCHAR)) ORDER BY billhook.billhook_issue.state = %(state_1)s::VARCHAR, billhook.billhook_issue.changed_at DESC
 LIMIT %(param_2)s::INTEGER
--> billhook_handler: all rows
--> billhook_handler: billhook_handler_name_key
--> billhook_issue: all rows

-- watching/issues.py list_open
SELECT billhook.billhook_issue.kind, billhook.billhook_issue.subject, billhook.billhook_issue.title, CASE WHEN NOT billhook.billhook_issue.kind = ANY (%(param_1)s::TEXT[]) THEN %(param_2)s WHEN ((SELECT billhook.failure.failed_at
FROM billhook.failure
WHERE billhook.failure.fingerprint = billhook.billhook_issue.fingerprint ORDER BY billhook.failure.id DESC
 LIMIT %(param_3)s::INTEGER) > %(param_4)s::TIMESTAMP WITH TIME ZONE) THEN %(param_5)s ELSE (SELECT billhook.run.id
FROM billhook.run JOIN billhook.failure ON billhook.failure.run_id = billhook.run.id
WHERE billhook.failure.fingerprint = billhook.billhook_issue.fingerprint AND billhook.run.state IN ('dead', 'waiting', 'due', 'running')
 LIMIT %(param_6)s::INTEGER) IS NOT NULL END AS anon_1
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.state = %(state_1)s::VARCHAR
--> billhook_issue: all rows
--> failure: failure_fingerprint_idx
--> failure: failure_run_id_idx
--> run: run_pkey

-- watching/issues.py newest_traceback
SELECT billhook.run.delivery_id, coalesce(billhook.failure.traceback, billhook.failure.error) AS coalesce_1
FROM billhook.failure JOIN billhook.run ON billhook.run.id = billhook.failure.run_id
WHERE billhook.failure.fingerprint = %(fingerprint_1)s::VARCHAR ORDER BY billhook.failure.id DESC
 LIMIT %(param_1)s::INTEGER
--> failure: failure_fingerprint_idx
--> run: run_pkey

-- watching/issues.py quarantined_by_issue
-- watching/occurrences.py occurrences
SELECT billhook.delivery.id, billhook.delivery.event_type, billhook.delivery.error, billhook.delivery.received_at
FROM billhook.delivery
WHERE billhook.delivery.state IN ('dead', 'quarantined') AND billhook.delivery.state = %(state_1)s::VARCHAR ORDER BY billhook.delivery.id DESC
 LIMIT %(most)s
--> delivery: delivery_failed_idx

-- watching/notifications.py _states
SELECT billhook.billhook_notifier.addresses
FROM billhook.billhook_notifier
--> billhook_notifier: all rows

-- watching/notifications.py looked_at
SELECT billhook.billhook_notifier.looked_at
FROM billhook.billhook_notifier
--> billhook_notifier: all rows

-- watching/notifications.py read_due
SELECT billhook.billhook_issue.fingerprint
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.kind != %(kind_1)s::VARCHAR AND billhook.billhook_issue.state = %(state_1)s::VARCHAR AND billhook.billhook_issue.notified = %(notified_1)s::INTEGER
--> billhook_issue: all rows

-- watching/notifications.py read_due
SELECT billhook.billhook_issue.kind
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.kind != %(kind_1)s::VARCHAR AND billhook.billhook_issue.state = ANY (%(param_1)s::TEXT[])
 LIMIT %(param_2)s::INTEGER
--> billhook_issue: all rows

-- watching/notifications.py record_look
UPDATE billhook.billhook_notifier SET looked_at=%(looked_at)s::TIMESTAMP WITH TIME ZONE
--> billhook_notifier: all rows

-- watching/notifications.py record_state
UPDATE billhook.billhook_issue SET notified=%(notified)s::INTEGER WHERE billhook.billhook_issue.fingerprint = %(fingerprint_1)s::VARCHAR AND billhook.billhook_issue.opened_at = %(opened_at_1)s::TIMESTAMP WITH TIME ZONE
--> billhook_issue: billhook_issue_pkey

-- watching/notifications.py record_state
UPDATE billhook.billhook_notifier SET addresses=%(addresses)s::VARCHAR
--> billhook_notifier: all rows

-- watching/notifications.py release_lease
UPDATE billhook.billhook_notifier SET leased_until=%(leased_until)s::TIMESTAMP WITH TIME ZONE WHERE billhook.billhook_notifier.owner = %(owner_1)s::VARCHAR
--> billhook_notifier: all rows

-- watching/notifications.py take_lease
SELECT billhook.billhook_notifier.owner
FROM billhook.billhook_notifier
--> billhook_notifier: all rows

-- watching/notifications.py take_lease
UPDATE billhook.billhook_notifier SET owner=%(owner)s::VARCHAR, leased_until=%(leased_until)s::TIMESTAMP WITH TIME ZONE WHERE billhook.billhook_notifier.owner = %(owner_1)s::VARCHAR OR billhook.billhook_notifier.owner = %(owner_2)s::VARCHAR OR billhook.billhook_notifier.leased_until < %(leased_until_1)s::TIMESTAMP WITH TIME ZONE
--> billhook_notifier: all rows

-- watching/occurrences.py occurrences
WITH RECURSIVE own (fingerprint) AS (
        SELECT (SELECT fingerprint FROM billhook.failure WHERE fingerprint IS NOT NULL ORDER BY fingerprint LIMIT 1)
        UNION ALL SELECT (
            SELECT fingerprint FROM billhook.failure WHERE fingerprint IS NOT NULL AND failure.fingerprint > own.fingerprint
            ORDER BY fingerprint LIMIT 1
        ) FROM own WHERE own.fingerprint IS NOT NULL
    )
    SELECT (
        SELECT id FROM billhook.failure WHERE failure.fingerprint = own.fingerprint ORDER BY id DESC LIMIT 1
    ) AS id FROM own WHERE fingerprint IS NOT NULL
    LIMIT %(most)s
--> failure: failure_fingerprint_idx

-- watching/occurrences.py occurrences
WITH RECURSIVE own (handler) AS (
        SELECT (SELECT handler FROM billhook.run WHERE state IN ('dead') ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM billhook.run WHERE state IN ('dead') AND run.handler > own.handler
            ORDER BY handler LIMIT 1
        ) FROM own WHERE own.handler IS NOT NULL
    )
    SELECT handler, (
        SELECT finished_at FROM (
            SELECT id, finished_at FROM billhook.run WHERE state IN ('dead') AND run.handler = own.handler
            AND finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT %(newest)s
        ) AS dead WHERE NOT EXISTS (
            SELECT 1 FROM billhook.failure WHERE failure.run_id = dead.id AND failure.fingerprint IS NOT NULL
        ) ORDER BY finished_at DESC LIMIT 1
    ) AS finished_at FROM own WHERE handler IS NOT NULL
    LIMIT %(most)s
--> failure: failure_run_id_idx
--> run: run_dead_idx

-- watching/occurrences.py occurrences
SELECT billhook.failure.fingerprint, billhook.run.handler, billhook.failure.error, billhook.failure.place, billhook.failure.failed_at
FROM billhook.failure JOIN billhook.run ON billhook.run.id = billhook.failure.run_id
WHERE billhook.failure.id = ANY (%(param_1)s::BIGINT[])
--> failure: failure_run_id_idx
--> run: run_pkey

-- watching/occurrences.py occurrences_in_figures
SELECT billhook.billhook_issue.fingerprint
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.fingerprint = %(fingerprint_1)s::VARCHAR AND billhook.billhook_issue.state = ANY (%(param_1)s::TEXT[])
--> billhook_issue: billhook_issue_pkey

-- watching/overview.py _calls
SELECT handler, finished_at AS ended_at, duration_seconds FROM billhook.run
    WHERE finished_at >= %(since)s::TIMESTAMP WITH TIME ZONE AND duration_seconds IS NOT NULL
    UNION ALL
    SELECT run.handler, failed_at, failure.duration_seconds FROM billhook.failure JOIN billhook.run ON run.id = run_id
    WHERE failed_at >= %(since)s::TIMESTAMP WITH TIME ZONE AND retried = 1 AND failure.duration_seconds IS NOT NULL
    LIMIT %(at_most)s
--> failure: failure_run_id_idx
--> run: run_finished_at_idx
--> run: run_pkey

-- watching/overview.py _state
SELECT (SELECT count(*) FROM (SELECT 1 FROM billhook.delivery WHERE state IN ('received') LIMIT %(at_most)s) AS counted) AS unread, (SELECT count(*) FROM (SELECT 1 FROM billhook.delivery WHERE state IN ('received', 'planned') AND state IN ('planned') LIMIT %(at_most)s) AS counted) AS in_progress, (SELECT count(*) FROM (SELECT 1 FROM billhook.delivery WHERE state IN ('dead', 'quarantined') AND state IN ('dead') LIMIT %(at_most)s) AS counted) AS dead, (SELECT count(*) FROM (SELECT 1 FROM billhook.delivery WHERE state IN ('dead', 'quarantined') AND state IN ('quarantined') LIMIT %(at_most)s) AS counted) AS quarantined, (SELECT count(*) FROM (SELECT 1 FROM billhook.delivery WHERE conflict_of IS NOT NULL AND state IN ('quarantined') LIMIT %(at_most)s) AS counted) AS conflicts,  (SELECT received_at FROM billhook.delivery WHERE state IN ('received', 'planned') ORDER BY id LIMIT 1) AS oldest_at, (SELECT received_at FROM billhook.delivery WHERE state IN ('received') ORDER BY id LIMIT 1) AS oldest_unread_at
--> delivery: delivery_conflict_idx
--> delivery: delivery_failed_idx
--> delivery: delivery_received_idx
--> delivery: delivery_unfinished_idx

-- watching/overview.py read_overview
WITH RECURSIVE types (event_type) AS (
        SELECT (SELECT event_type FROM billhook.delivery WHERE TRUE ORDER BY event_type LIMIT 1)
        UNION ALL SELECT (
            SELECT event_type FROM billhook.delivery WHERE TRUE AND delivery.event_type > types.event_type
            ORDER BY event_type LIMIT 1
        ) FROM types WHERE types.event_type IS NOT NULL
    ), of_rows AS (
        SELECT event_type, (
            SELECT received_at FROM billhook.delivery WHERE delivery.event_type = types.event_type
            ORDER BY id DESC LIMIT 1
        ) AS last_at FROM types WHERE event_type IS NOT NULL LIMIT 500
    ) SELECT event_type, last_at FROM of_rows
    UNION ALL
    SELECT event_type, max(last_at) FROM billhook.billhook_count WHERE what = 'accepted' GROUP BY event_type
--> billhook_count: billhook_count_pkey
--> delivery: delivery_event_type_id_idx
--> delivery: delivery_pkey

-- watching/snoozes.py _happened_since
SELECT billhook.failure.failed_at
FROM billhook.failure
WHERE billhook.failure.fingerprint = %(fingerprint_1)s::VARCHAR ORDER BY billhook.failure.id DESC
 LIMIT %(param_1)s::INTEGER OFFSET %(param_2)s::INTEGER
--> failure: failure_fingerprint_idx

-- watching/snoozes.py count_dead_of_snoozed
SELECT billhook.billhook_issue.fingerprint, billhook.billhook_issue.kind, billhook.billhook_issue.subject
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.state = %(state_1)s::VARCHAR
--> billhook_issue: all rows

-- watching/snoozes.py count_dead_of_snoozed
SELECT count(*) AS count_1
FROM (SELECT billhook.delivery.id AS id
FROM billhook.delivery
WHERE billhook.delivery.state IN ('dead', 'quarantined') AND billhook.delivery.state = %(state_1)s::VARCHAR AND NOT (EXISTS (SELECT *
FROM billhook.run
WHERE billhook.run.delivery_id = billhook.delivery.id AND billhook.run.state IN ('dead') AND NOT (EXISTS (SELECT *
FROM billhook.failure
WHERE billhook.failure.run_id = billhook.run.id AND billhook.failure.fingerprint = ANY (%(param_1)s::TEXT[])))))
 LIMIT %(param_2)s::INTEGER) AS anon_1
--> delivery: delivery_failed_idx
--> failure: failure_run_id_idx
--> run: run_dead_idx

-- watching/snoozes.py count_quarantined_of_snoozed
SELECT billhook.billhook_issue.fingerprint
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.state = %(state_1)s::VARCHAR AND billhook.billhook_issue.kind = %(kind_1)s::VARCHAR
--> billhook_issue: all rows

-- watching/snoozes.py snoozed_ids
SELECT billhook.billhook_issue.fingerprint
FROM billhook.billhook_issue
WHERE billhook.billhook_issue.state = %(state_1)s::VARCHAR
--> billhook_issue: all rows

-- watching/stalled.py _longest_seconds
SELECT anon_1.handler, max(anon_1.duration_seconds) AS max_1
FROM (SELECT billhook.run.handler AS handler, billhook.run.duration_seconds AS duration_seconds
FROM billhook.run
WHERE billhook.run.finished_at IS NOT NULL ORDER BY billhook.run.finished_at DESC
 LIMIT %(param_1)s::INTEGER) AS anon_1
WHERE anon_1.duration_seconds IS NOT NULL GROUP BY anon_1.handler
--> run: run_finished_at_idx

-- watching/stalled.py read_hanging
SELECT billhook.run.handler, billhook.run.started_at
FROM billhook.run
WHERE billhook.run.state IN ('due', 'running') AND billhook.run.state = %(state_1)s::VARCHAR AND billhook.run.queued = %(queued_1)s::INTEGER AND billhook.run.started_at < %(started_at_1)s::TIMESTAMP WITH TIME ZONE
--> run: run_claim_idx

-- watching/stalled.py read_held
SELECT billhook.billhook_worker.host, billhook.billhook_worker.pid, billhook.billhook_worker.owner, billhook.billhook_worker.held_at
FROM billhook.billhook_worker
WHERE billhook.billhook_worker.engine != %(engine_1)s::VARCHAR AND billhook.billhook_worker.stopped_at IS NULL AND billhook.billhook_worker.died_at IS NULL AND billhook.billhook_worker.seen_at > %(seen_at_1)s::TIMESTAMP WITH TIME ZONE ORDER BY billhook.billhook_worker.held_at, billhook.billhook_worker.owner
--> billhook_worker: billhook_worker_seen_at_idx

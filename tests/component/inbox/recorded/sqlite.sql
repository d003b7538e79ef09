-- SQLAlchemy 2.1.9, sqlite 3.53.4

-- counting/compaction.py compact
DELETE FROM billhook_count WHERE (billhook_count.hour, billhook_count.source, billhook_count.event_type, billhook_count.handler, billhook_count.what, billhook_count.cause, billhook_count.bucket) IN (SELECT billhook_count.hour, billhook_count.source, billhook_count.event_type, billhook_count.handler, billhook_count.what, billhook_count.cause, billhook_count.bucket
FROM billhook_count
WHERE billhook_count.hour IN (?) AND (billhook_count.hour < ? OR billhook_count.hour < ? AND billhook_count.what != ?)
 LIMIT ? OFFSET ?) RETURNING hour, source, event_type, handler, what, cause, bucket, number, seconds, last_at
--> SEARCH billhook_count USING PRIMARY KEY (hour=? AND source=? AND event_type=? AND handler=? AND what=? AND cause=? AND bucket=?)
--> SEARCH billhook_count USING PRIMARY KEY (hour=?)

-- counting/compaction.py compact
SELECT DISTINCT billhook_count.hour
FROM billhook_count
WHERE billhook_count.hour > ? AND (billhook_count.hour < ? OR billhook_count.hour < ? AND billhook_count.what != ?)
--> SEARCH billhook_count USING PRIMARY KEY (hour>?)

-- counting/counts.py Counts.write
INSERT INTO billhook_count (hour, source, event_type, handler, what, cause, bucket, number, seconds, last_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (hour, source, event_type, handler, what, cause, bucket) DO UPDATE SET number = (billhook_count.number + excluded.number), seconds = (billhook_count.seconds + excluded.seconds), last_at = CASE WHEN (excluded.last_at > billhook_count.last_at) THEN excluded.last_at ELSE billhook_count.last_at END

-- counting/counts.py _first_reading
SELECT min(run.delivery_id) AS min_1
FROM run
WHERE run.handler IN (SELECT value FROM json_each(?)) AND run.order_key IS NOT NULL AND run.state IN ('waiting', 'due', 'running')
--> SEARCH run USING COVERING INDEX run_order_idx (handler=? AND order_key>?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- counting/counts.py _first_reading
SELECT min(run.delivery_id) AS min_1
FROM run
WHERE run.handler IN (SELECT value FROM json_each(?)) AND run.state IN ('due', 'running')
--> SEARCH run USING INDEX run_claim_idx (state=? AND handler=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- counting/counts.py _first_reading
WITH RECURSIVE due (handler) AS (
        SELECT (SELECT handler FROM run WHERE state IN ('due', 'running') AND state = 'due' ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM run WHERE state IN ('due', 'running') AND state = 'due' AND run.handler > due.handler
            ORDER BY handler LIMIT 1
        ) FROM due WHERE due.handler IS NOT NULL
    ), running (handler) AS (
        SELECT (SELECT handler FROM run WHERE state IN ('due', 'running') AND state = 'running' ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM run WHERE state IN ('due', 'running') AND state = 'running' AND run.handler > running.handler
            ORDER BY handler LIMIT 1
        ) FROM running WHERE running.handler IS NOT NULL
    ) SELECT handler FROM due UNION SELECT handler FROM running
--> SCAN CONSTANT ROW
--> SEARCH run USING COVERING INDEX run_claim_idx (state=?)
--> SCAN due
--> SEARCH run USING COVERING INDEX run_claim_idx (state=? AND handler>?)
--> SCAN due
--> SCAN CONSTANT ROW
--> SEARCH run USING COVERING INDEX run_claim_idx (state=?)
--> SCAN running
--> SEARCH run USING COVERING INDEX run_claim_idx (state=? AND handler>?)
--> SCAN running

-- counting/counts.py _newest
SELECT coalesce((SELECT min(delivery.id) - ? AS anon_1
FROM delivery
WHERE delivery.state IN ('received') AND delivery.type_field IS NOT NULL), (SELECT coalesce(max(delivery.id), ?) AS coalesce_2
FROM delivery)) AS coalesce_1, coalesce((SELECT min(delivery.id) - ? AS anon_1
FROM delivery
WHERE delivery.state IN ('received')), (SELECT coalesce(max(delivery.id), ?) AS coalesce_2
FROM delivery)) AS coalesce_4, (SELECT coalesce(max(failure.id), ?) AS coalesce_5
FROM failure) AS anon_2
--> SCAN CONSTANT ROW
--> SEARCH delivery USING INDEX delivery_unread_type_idx
--> SEARCH delivery
--> SEARCH delivery USING COVERING INDEX delivery_received_idx
--> SEARCH delivery
--> SEARCH failure

-- counting/counts.py _sums
SELECT anon_1.event_type, anon_1.handler, anon_1.what, anon_1.cause, anon_1.bucket, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (SELECT billhook_count.hour AS hour, billhook_count.source AS source, billhook_count.event_type AS event_type, billhook_count.handler AS handler, billhook_count.what AS what, billhook_count.cause AS cause, billhook_count.bucket AS bucket, billhook_count.number AS number, billhook_count.seconds AS seconds, billhook_count.last_at AS last_at
FROM billhook_count UNION ALL SELECT anon_2.hour AS hour, anon_2.source AS source, anon_2.event_type AS event_type, anon_2.handler AS handler, anon_2.what AS what, anon_2.cause AS cause, anon_2.bucket AS bucket, anon_2.number AS number, anon_2.seconds AS seconds, anon_2.last_at AS last_at
FROM (
    SELECT substr(received_at, 1, 13) || ':00:00.000000' AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IS NOT NULL AND coalesce(sent_as, event_type) != '' AND id > ? AND id <= ?
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT substr(received_at, 1, 13) || ':00:00.000000', source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IS NOT NULL
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > ? AND id <= ?
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT substr(failed_at, 1, 13) || ':00:00.000000', '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM failure JOIN run ON run.id = run_id WHERE retried = 1 AND failure.id > ?
        AND failure.id <= ? AND delivery_id IS NOT NULL GROUP BY 1, 4, 7
    UNION ALL
    SELECT substr(finished_at, 1, 13) || ':00:00.000000', '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM run WHERE finished_at >= ? AND finished_at < ?
        AND delivery_id IS NOT NULL GROUP BY 1, 4, 5, 7
) AS anon_2) AS anon_1
WHERE anon_1.hour >= ? AND anon_1.what IN (SELECT value FROM json_each(?)) GROUP BY anon_1.event_type, anon_1.handler, anon_1.what, anon_1.cause, anon_1.bucket
--> SEARCH billhook_count USING PRIMARY KEY (hour>?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)
--> SEARCH delivery USING INDEX delivery_failed_idx (state=? AND id>? AND id<?)
--> SEARCH failure USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING INDEX run_finished_at_idx (finished_at>? AND finished_at<?)
--> SCAN anon_2
--> SCAN anon_1

-- counting/counts.py _sums
SELECT anon_1.hour, anon_1.event_type, anon_1.what, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (SELECT billhook_count.hour AS hour, billhook_count.source AS source, billhook_count.event_type AS event_type, billhook_count.handler AS handler, billhook_count.what AS what, billhook_count.cause AS cause, billhook_count.bucket AS bucket, billhook_count.number AS number, billhook_count.seconds AS seconds, billhook_count.last_at AS last_at
FROM billhook_count UNION ALL SELECT anon_2.hour AS hour, anon_2.source AS source, anon_2.event_type AS event_type, anon_2.handler AS handler, anon_2.what AS what, anon_2.cause AS cause, anon_2.bucket AS bucket, anon_2.number AS number, anon_2.seconds AS seconds, anon_2.last_at AS last_at
FROM (
    SELECT substr(received_at, 1, 13) || ':00:00.000000' AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IS NOT NULL AND coalesce(sent_as, event_type) != '' AND id > ? AND id <= ?
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT substr(received_at, 1, 13) || ':00:00.000000', source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IS NOT NULL
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > ? AND id <= ?
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT substr(failed_at, 1, 13) || ':00:00.000000', '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM failure JOIN run ON run.id = run_id WHERE retried = 1 AND failure.id > ?
        AND failure.id <= ? AND delivery_id IS NOT NULL GROUP BY 1, 4, 7
    UNION ALL
    SELECT substr(finished_at, 1, 13) || ':00:00.000000', '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM run WHERE finished_at >= ? AND finished_at < ?
        AND delivery_id IS NOT NULL GROUP BY 1, 4, 5, 7
) AS anon_2) AS anon_1
WHERE anon_1.hour >= ? AND anon_1.what IN (SELECT value FROM json_each(?)) GROUP BY anon_1.hour, anon_1.event_type, anon_1.what
--> SEARCH billhook_count USING PRIMARY KEY (hour>?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)
--> SEARCH delivery USING INDEX delivery_failed_idx (state=? AND id>? AND id<?)
--> SEARCH failure USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING INDEX run_finished_at_idx (finished_at>? AND finished_at<?)
--> SCAN anon_2
--> SCAN anon_1

-- counting/counts.py _sums
SELECT anon_1.hour, anon_1.handler, anon_1.what, anon_1.bucket, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (
    SELECT substr(received_at, 1, 16) || ':00.000000' AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IS NOT NULL AND coalesce(sent_as, event_type) != '' AND id > ? AND id <= ?
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT substr(received_at, 1, 16) || ':00.000000', source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IS NOT NULL
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > ? AND id <= ?
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT substr(failed_at, 1, 16) || ':00.000000', '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM failure JOIN run ON run.id = run_id WHERE retried = 1 AND failure.id > ?
        AND failure.id <= ? AND delivery_id IS NOT NULL GROUP BY 1, 4, 7
    UNION ALL
    SELECT substr(finished_at, 1, 16) || ':00.000000', '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM run WHERE finished_at >= ? AND finished_at < ?
        AND delivery_id IS NOT NULL GROUP BY 1, 4, 5, 7
) AS anon_1
WHERE anon_1.hour >= ? AND anon_1.what IN (SELECT value FROM json_each(?)) GROUP BY anon_1.hour, anon_1.handler, anon_1.what, anon_1.bucket
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH delivery USING INDEX delivery_failed_idx (state=? AND id>? AND id<?)
--> SEARCH failure USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING INDEX run_finished_at_idx (finished_at>? AND finished_at<?)
--> SCAN anon_1

-- counting/counts.py _sums
SELECT anon_1.hour, anon_1.handler, anon_1.what, anon_1.bucket, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (SELECT billhook_count.hour AS hour, billhook_count.source AS source, billhook_count.event_type AS event_type, billhook_count.handler AS handler, billhook_count.what AS what, billhook_count.cause AS cause, billhook_count.bucket AS bucket, billhook_count.number AS number, billhook_count.seconds AS seconds, billhook_count.last_at AS last_at
FROM billhook_count UNION ALL SELECT anon_2.hour AS hour, anon_2.source AS source, anon_2.event_type AS event_type, anon_2.handler AS handler, anon_2.what AS what, anon_2.cause AS cause, anon_2.bucket AS bucket, anon_2.number AS number, anon_2.seconds AS seconds, anon_2.last_at AS last_at
FROM (
    SELECT substr(received_at, 1, 13) || ':00:00.000000' AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IS NOT NULL AND coalesce(sent_as, event_type) != '' AND id > ? AND id <= ?
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT substr(received_at, 1, 13) || ':00:00.000000', source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IS NOT NULL
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > ? AND id <= ?
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT substr(failed_at, 1, 13) || ':00:00.000000', '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM failure JOIN run ON run.id = run_id WHERE retried = 1 AND failure.id > ?
        AND failure.id <= ? AND delivery_id IS NOT NULL GROUP BY 1, 4, 7
    UNION ALL
    SELECT substr(finished_at, 1, 13) || ':00:00.000000', '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM run WHERE finished_at >= ? AND finished_at < ?
        AND delivery_id IS NOT NULL GROUP BY 1, 4, 5, 7
) AS anon_2) AS anon_1
WHERE anon_1.hour >= ? AND anon_1.what IN (SELECT value FROM json_each(?)) GROUP BY anon_1.hour, anon_1.handler, anon_1.what, anon_1.bucket
--> SEARCH billhook_count USING PRIMARY KEY (hour>?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)
--> SEARCH delivery USING INDEX delivery_failed_idx (state=? AND id>? AND id<?)
--> SEARCH failure USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING INDEX run_finished_at_idx (finished_at>? AND finished_at<?)
--> SCAN anon_2
--> SCAN anon_1

-- counting/counts.py _sums
SELECT anon_1.hour, anon_1.handler, anon_1.what, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (SELECT billhook_count.hour AS hour, billhook_count.source AS source, billhook_count.event_type AS event_type, billhook_count.handler AS handler, billhook_count.what AS what, billhook_count.cause AS cause, billhook_count.bucket AS bucket, billhook_count.number AS number, billhook_count.seconds AS seconds, billhook_count.last_at AS last_at
FROM billhook_count UNION ALL SELECT anon_2.hour AS hour, anon_2.source AS source, anon_2.event_type AS event_type, anon_2.handler AS handler, anon_2.what AS what, anon_2.cause AS cause, anon_2.bucket AS bucket, anon_2.number AS number, anon_2.seconds AS seconds, anon_2.last_at AS last_at
FROM (
    SELECT substr(received_at, 1, 13) || ':00:00.000000' AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IS NOT NULL AND coalesce(sent_as, event_type) != '' AND id > ? AND id <= ?
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT substr(received_at, 1, 13) || ':00:00.000000', source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IS NOT NULL
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > ? AND id <= ?
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT substr(failed_at, 1, 13) || ':00:00.000000', '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM failure JOIN run ON run.id = run_id WHERE retried = 1 AND failure.id > ?
        AND failure.id <= ? AND delivery_id IS NOT NULL GROUP BY 1, 4, 7
    UNION ALL
    SELECT substr(finished_at, 1, 13) || ':00:00.000000', '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM run WHERE finished_at >= ? AND finished_at < ?
        AND delivery_id IS NOT NULL GROUP BY 1, 4, 5, 7
) AS anon_2) AS anon_1
WHERE anon_1.hour >= ? AND anon_1.what IN (SELECT value FROM json_each(?)) GROUP BY anon_1.hour, anon_1.handler, anon_1.what
--> SEARCH billhook_count USING PRIMARY KEY (hour>?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)
--> SEARCH delivery USING INDEX delivery_failed_idx (state=? AND id>? AND id<?)
--> SEARCH failure USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING INDEX run_finished_at_idx (finished_at>? AND finished_at<?)
--> SCAN anon_2
--> SCAN anon_1

-- counting/counts.py _sums
SELECT anon_1.hour, anon_1.source, anon_1.event_type, anon_1.handler, anon_1.what, anon_1.cause, anon_1.bucket, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (
    SELECT substr(received_at, 1, 13) || ':00:00.000000' AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IN (SELECT value FROM json_each(?)) AND coalesce(sent_as, event_type) != '' AND id > ? AND id <= ?
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT substr(received_at, 1, 13) || ':00:00.000000', source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IN (SELECT value FROM json_each(?))
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > ? AND id <= ?
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT substr(failed_at, 1, 13) || ':00:00.000000', '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM failure JOIN run ON run.id = run_id WHERE retried = 1 AND failure.id > ?
        AND failure.id <= ? AND delivery_id IN (SELECT value FROM json_each(?)) GROUP BY 1, 4, 7
    UNION ALL
    SELECT substr(finished_at, 1, 13) || ':00:00.000000', '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM run WHERE finished_at >= ? AND finished_at < ?
        AND delivery_id IN (SELECT value FROM json_each(?)) GROUP BY 1, 4, 5, 7

    UNION ALL
    SELECT substr(failed_at, 1, 13) || ':00:00.000000', '', '', '', 'issue', fingerprint, -1, count(*), 0.0,
        max(failed_at)
    FROM failure JOIN run ON run.id = run_id WHERE fingerprint IS NOT NULL AND delivery_id IN (SELECT value FROM json_each(?))
    GROUP BY 1, 6
) AS anon_1 GROUP BY anon_1.hour, anon_1.source, anon_1.event_type, anon_1.handler, anon_1.what, anon_1.cause, anon_1.bucket
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH delivery USING INDEX delivery_failed_idx (state=? AND id=? AND rowid>? AND rowid<?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH failure USING INDEX failure_run_id_idx (run_id=? AND rowid>? AND rowid<?)
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH failure USING INDEX failure_run_id_idx (run_id=?)
--> SCAN anon_1

-- counting/counts.py _sums
SELECT anon_1.hour, anon_1.source, anon_1.event_type, anon_1.handler, anon_1.what, anon_1.cause, anon_1.bucket, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (
    SELECT substr(received_at, 1, 13) || ':00:00.000000' AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IS NOT NULL AND coalesce(sent_as, event_type) != '' AND id > ? AND id <= ?
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT substr(received_at, 1, 13) || ':00:00.000000', source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IS NOT NULL
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > ? AND id <= ?
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT substr(failed_at, 1, 13) || ':00:00.000000', '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM failure JOIN run ON run.id = run_id WHERE retried = 1 AND failure.id > ?
        AND failure.id <= ? AND delivery_id IS NOT NULL GROUP BY 1, 4, 7
    UNION ALL
    SELECT substr(finished_at, 1, 13) || ':00:00.000000', '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM run WHERE finished_at >= ? AND finished_at < ?
        AND delivery_id IS NOT NULL GROUP BY 1, 4, 5, 7
) AS anon_1 GROUP BY anon_1.hour, anon_1.source, anon_1.event_type, anon_1.handler, anon_1.what, anon_1.cause, anon_1.bucket
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)
--> SEARCH delivery USING INDEX delivery_failed_idx (state=? AND id>? AND id<?)
--> SEARCH failure USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING INDEX run_finished_at_idx (finished_at>? AND finished_at<?)
--> SCAN anon_1

-- counting/counts.py _sums
SELECT anon_1.hour, anon_1.source, anon_1.what, anon_1.cause, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (SELECT billhook_count.hour AS hour, billhook_count.source AS source, billhook_count.event_type AS event_type, billhook_count.handler AS handler, billhook_count.what AS what, billhook_count.cause AS cause, billhook_count.bucket AS bucket, billhook_count.number AS number, billhook_count.seconds AS seconds, billhook_count.last_at AS last_at
FROM billhook_count UNION ALL SELECT anon_2.hour AS hour, anon_2.source AS source, anon_2.event_type AS event_type, anon_2.handler AS handler, anon_2.what AS what, anon_2.cause AS cause, anon_2.bucket AS bucket, anon_2.number AS number, anon_2.seconds AS seconds, anon_2.last_at AS last_at
FROM (
    SELECT substr(received_at, 1, 13) || ':00:00.000000' AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IS NOT NULL AND coalesce(sent_as, event_type) != '' AND id > ? AND id <= ?
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT substr(received_at, 1, 13) || ':00:00.000000', source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IS NOT NULL
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > ? AND id <= ?
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT substr(failed_at, 1, 13) || ':00:00.000000', '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM failure JOIN run ON run.id = run_id WHERE retried = 1 AND failure.id > ?
        AND failure.id <= ? AND delivery_id IS NOT NULL GROUP BY 1, 4, 7
    UNION ALL
    SELECT substr(finished_at, 1, 13) || ':00:00.000000', '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM run WHERE finished_at >= ? AND finished_at < ?
        AND delivery_id IS NOT NULL GROUP BY 1, 4, 5, 7
) AS anon_2) AS anon_1
WHERE anon_1.hour >= ? AND anon_1.what IN (SELECT value FROM json_each(?)) GROUP BY anon_1.hour, anon_1.source, anon_1.what, anon_1.cause
--> SEARCH billhook_count USING PRIMARY KEY (hour>?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)
--> SEARCH delivery USING INDEX delivery_failed_idx (state=? AND id>? AND id<?)
--> SEARCH failure USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING INDEX run_finished_at_idx (finished_at>? AND finished_at<?)
--> SCAN anon_2
--> SCAN anon_1

-- counting/counts.py _sums
SELECT anon_1.source, anon_1.event_type, anon_1.handler, anon_1.what, anon_1.cause, anon_1.bucket, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (SELECT billhook_count.hour AS hour, billhook_count.source AS source, billhook_count.event_type AS event_type, billhook_count.handler AS handler, billhook_count.what AS what, billhook_count.cause AS cause, billhook_count.bucket AS bucket, billhook_count.number AS number, billhook_count.seconds AS seconds, billhook_count.last_at AS last_at
FROM billhook_count UNION ALL SELECT anon_2.hour AS hour, anon_2.source AS source, anon_2.event_type AS event_type, anon_2.handler AS handler, anon_2.what AS what, anon_2.cause AS cause, anon_2.bucket AS bucket, anon_2.number AS number, anon_2.seconds AS seconds, anon_2.last_at AS last_at
FROM (
    SELECT substr(received_at, 1, 13) || ':00:00.000000' AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IS NOT NULL AND coalesce(sent_as, event_type) != '' AND id > ? AND id <= ?
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT substr(received_at, 1, 13) || ':00:00.000000', source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IS NOT NULL
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > ? AND id <= ?
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT substr(failed_at, 1, 13) || ':00:00.000000', '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM failure JOIN run ON run.id = run_id WHERE retried = 1 AND failure.id > ?
        AND failure.id <= ? AND delivery_id IS NOT NULL GROUP BY 1, 4, 7
    UNION ALL
    SELECT substr(finished_at, 1, 13) || ':00:00.000000', '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM run WHERE finished_at >= ? AND finished_at < ?
        AND delivery_id IS NOT NULL GROUP BY 1, 4, 5, 7
) AS anon_2) AS anon_1
WHERE anon_1.hour >= ? AND anon_1.what IN (SELECT value FROM json_each(?)) GROUP BY anon_1.source, anon_1.event_type, anon_1.handler, anon_1.what, anon_1.cause, anon_1.bucket
--> SEARCH billhook_count USING PRIMARY KEY (hour>?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)
--> SEARCH delivery USING INDEX delivery_failed_idx (state=? AND id>? AND id<?)
--> SEARCH failure USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING INDEX run_finished_at_idx (finished_at>? AND finished_at<?)
--> SCAN anon_2
--> SCAN anon_1

-- counting/counts.py _sums
SELECT anon_1.what, anon_1.cause, sum(anon_1.number) AS sum_1, sum(anon_1.seconds) AS sum_2, max(anon_1.last_at) AS max_1
FROM (SELECT billhook_count.hour AS hour, billhook_count.source AS source, billhook_count.event_type AS event_type, billhook_count.handler AS handler, billhook_count.what AS what, billhook_count.cause AS cause, billhook_count.bucket AS bucket, billhook_count.number AS number, billhook_count.seconds AS seconds, billhook_count.last_at AS last_at
FROM billhook_count UNION ALL SELECT anon_2.hour AS hour, anon_2.source AS source, anon_2.event_type AS event_type, anon_2.handler AS handler, anon_2.what AS what, anon_2.cause AS cause, anon_2.bucket AS bucket, anon_2.number AS number, anon_2.seconds AS seconds, anon_2.last_at AS last_at
FROM (
    SELECT substr(received_at, 1, 13) || ':00:00.000000' AS hour, source, coalesce(sent_as, event_type) AS event_type, '' AS handler,
        'accepted' AS what, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IS NOT NULL AND coalesce(sent_as, event_type) != '' AND id > ? AND id <= ?
        GROUP BY 1, 2, 3
    UNION ALL
    SELECT substr(received_at, 1, 13) || ':00:00.000000', source, coalesce(sent_as, event_type), '',
        CASE WHEN type_field IS NOT NULL AND coalesce(sent_as, event_type) = '' THEN 'untyped' ELSE 'quarantined' END, '' AS cause, -1 AS bucket, count(*) AS number, 0.0 AS seconds,
        max(received_at) AS last_at
    FROM delivery WHERE conflict_of IS NULL AND id IS NOT NULL
        AND (coalesce(sent_as, event_type) != '' OR type_field IS NOT NULL AND coalesce(sent_as, event_type) = '') AND id > ? AND id <= ?
        AND state IN ('dead', 'quarantined') AND state IN ('quarantined') GROUP BY 1, 2, 3, 5
    UNION ALL
    SELECT substr(failed_at, 1, 13) || ':00:00.000000', '', '', handler, 'failed', '', CASE WHEN failure.duration_seconds IS NULL THEN -1 WHEN failure.duration_seconds <= 0.001 THEN 0 WHEN failure.duration_seconds <= 0.002 THEN 1 WHEN failure.duration_seconds <= 0.005 THEN 2 WHEN failure.duration_seconds <= 0.01 THEN 3 WHEN failure.duration_seconds <= 0.02 THEN 4 WHEN failure.duration_seconds <= 0.05 THEN 5 WHEN failure.duration_seconds <= 0.1 THEN 6 WHEN failure.duration_seconds <= 0.2 THEN 7 WHEN failure.duration_seconds <= 0.5 THEN 8 WHEN failure.duration_seconds <= 1.0 THEN 9 WHEN failure.duration_seconds <= 2.0 THEN 10 WHEN failure.duration_seconds <= 5.0 THEN 11 WHEN failure.duration_seconds <= 10.0 THEN 12 WHEN failure.duration_seconds <= 20.0 THEN 13 WHEN failure.duration_seconds <= 50.0 THEN 14 WHEN failure.duration_seconds <= 100.0 THEN 15 WHEN failure.duration_seconds <= 200.0 THEN 16 WHEN failure.duration_seconds <= 500.0 THEN 17 WHEN failure.duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(failure.duration_seconds, 0) * 1048576) / 1048576),
        max(failed_at)
    FROM failure JOIN run ON run.id = run_id WHERE retried = 1 AND failure.id > ?
        AND failure.id <= ? AND delivery_id IS NOT NULL GROUP BY 1, 4, 7
    UNION ALL
    SELECT substr(finished_at, 1, 13) || ':00:00.000000', '', '', handler, state, '', CASE WHEN duration_seconds IS NULL THEN -1 WHEN duration_seconds <= 0.001 THEN 0 WHEN duration_seconds <= 0.002 THEN 1 WHEN duration_seconds <= 0.005 THEN 2 WHEN duration_seconds <= 0.01 THEN 3 WHEN duration_seconds <= 0.02 THEN 4 WHEN duration_seconds <= 0.05 THEN 5 WHEN duration_seconds <= 0.1 THEN 6 WHEN duration_seconds <= 0.2 THEN 7 WHEN duration_seconds <= 0.5 THEN 8 WHEN duration_seconds <= 1.0 THEN 9 WHEN duration_seconds <= 2.0 THEN 10 WHEN duration_seconds <= 5.0 THEN 11 WHEN duration_seconds <= 10.0 THEN 12 WHEN duration_seconds <= 20.0 THEN 13 WHEN duration_seconds <= 50.0 THEN 14 WHEN duration_seconds <= 100.0 THEN 15 WHEN duration_seconds <= 200.0 THEN 16 WHEN duration_seconds <= 500.0 THEN 17 WHEN duration_seconds <= 1000.0 THEN 18 ELSE 19 END, count(*), sum(round(coalesce(duration_seconds, 0) * 1048576) / 1048576),
        max(finished_at)
    FROM run WHERE finished_at >= ? AND finished_at < ?
        AND delivery_id IS NOT NULL GROUP BY 1, 4, 5, 7
) AS anon_2) AS anon_1
WHERE anon_1.hour >= ? AND anon_1.what IN (SELECT value FROM json_each(?)) GROUP BY anon_1.what, anon_1.cause
--> SEARCH billhook_count USING PRIMARY KEY (hour>?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)
--> SEARCH delivery USING INDEX delivery_failed_idx (state=? AND id>? AND id<?)
--> SEARCH failure USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING INDEX run_finished_at_idx (finished_at>? AND finished_at<?)
--> SCAN anon_2
--> SCAN anon_1

-- counting/counts.py _watermark
SELECT billhook_watermark.finished_at, billhook_watermark.delivery_id, billhook_watermark.quarantined_id, billhook_watermark.failure_id
FROM billhook_watermark
--> SCAN billhook_watermark

-- counting/counts.py _watermark_at
SELECT delivery.id
FROM delivery
WHERE delivery.received_at < ? OR delivery.id <= (SELECT max(delivery.id) AS max_1
FROM delivery) - ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SCAN delivery
--> SEARCH delivery

-- counting/counts.py _watermark_at
SELECT failure.id
FROM failure
WHERE failure.failed_at < ? OR failure.id <= (SELECT max(failure.id) AS max_1
FROM failure) - ? ORDER BY failure.id DESC
 LIMIT ? OFFSET ?
--> SCAN failure
--> SEARCH failure

-- counting/counts.py _watermark_at
SELECT run.finished_at
FROM run
WHERE run.finished_at >= ? ORDER BY run.finished_at DESC
 LIMIT ? OFFSET ?
--> SEARCH run USING COVERING INDEX run_finished_at_idx (finished_at>?)

-- counting/counts.py advance
SELECT run.finished_at
FROM run
WHERE run.finished_at > ? AND run.finished_at < ? ORDER BY run.finished_at
 LIMIT ? OFFSET ?
--> SEARCH run USING COVERING INDEX run_finished_at_idx (finished_at>? AND finished_at<?)

-- counting/counts.py advance
UPDATE billhook_watermark SET finished_at=?, delivery_id=?, quarantined_id=?, failure_id=?
--> SCAN billhook_watermark

-- counting/counts.py keeping
UPDATE billhook_watermark SET delivery_id=(SELECT coalesce(max(delivery.id), ?) AS coalesce_1
FROM delivery) WHERE billhook_watermark.delivery_id > (SELECT coalesce(max(delivery.id), ?) AS coalesce_1
FROM delivery)
--> SCAN billhook_watermark
--> SEARCH delivery
--> SEARCH delivery

-- counting/counts.py keeping
UPDATE billhook_watermark SET quarantined_id=(SELECT coalesce(max(delivery.id), ?) AS coalesce_1
FROM delivery) WHERE billhook_watermark.quarantined_id > (SELECT coalesce(max(delivery.id), ?) AS coalesce_1
FROM delivery)
--> SCAN billhook_watermark
--> SEARCH delivery
--> SEARCH delivery

-- counting/counts.py keeping
-- running/readings.py forget_failures
UPDATE billhook_watermark SET failure_id=(SELECT coalesce(max(failure.id), ?) AS coalesce_1
FROM failure) WHERE billhook_watermark.failure_id > (SELECT coalesce(max(failure.id), ?) AS coalesce_1
FROM failure)
--> SCAN billhook_watermark
--> SEARCH failure
--> SEARCH failure

-- counting/counts.py note
SELECT run.id
FROM run
WHERE run.finished_at >= ? ORDER BY run.finished_at
 LIMIT ? OFFSET ?
--> SEARCH run USING COVERING INDEX run_finished_at_idx (finished_at>?)

-- counting/crashes.py read_crashes
SELECT billhook_count.handler, billhook_count.cause, billhook_count.number, billhook_count.last_at
FROM billhook_count
WHERE billhook_count.hour >= ? AND billhook_count.what = ? ORDER BY billhook_count.last_at
--> SEARCH billhook_count USING PRIMARY KEY (hour>?)

-- counting/retention.py cut_texts
SELECT billhook_issue.fingerprint, billhook_issue.title, billhook_issue.kind
FROM billhook_issue
WHERE billhook_issue.fingerprint IN (SELECT value FROM json_each(?)) AND NOT (EXISTS (SELECT *
FROM failure
WHERE failure.fingerprint = billhook_issue.fingerprint)) ORDER BY billhook_issue.fingerprint
--> SEARCH billhook_issue USING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH failure USING INDEX failure_fingerprint_idx (fingerprint=?)

-- counting/retention.py cut_texts
SELECT billhook_issue.fingerprint, billhook_issue.title, billhook_issue.kind
FROM billhook_issue
WHERE billhook_issue.fingerprint IN (SELECT value FROM json_each(?)) ORDER BY billhook_issue.fingerprint
--> SEARCH billhook_issue USING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- counting/retention.py cut_texts
SELECT billhook_issue.fingerprint, billhook_issue.title, billhook_issue.kind
FROM billhook_issue
WHERE billhook_issue.kind = ? AND billhook_issue.subject IN (SELECT value FROM json_each(?)) ORDER BY billhook_issue.fingerprint
--> SCAN billhook_issue USING INDEX sqlite_autoindex_billhook_issue_1
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- counting/retention.py cut_texts
UPDATE billhook_issue SET title=?, why=? WHERE billhook_issue.fingerprint = ?
--> SEARCH billhook_issue USING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)

-- counting/retention.py find
SELECT delivery.id, delivery.state, delivery.received_at, delivery.signed_at, delivery.event_type
FROM delivery
WHERE delivery.id > ? ORDER BY delivery.id
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid>?)

-- counting/retention.py prune
DELETE FROM delivery WHERE delivery.id IN (SELECT value FROM json_each(?))
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (delivery_id=?)

-- counting/retention.py prune
DELETE FROM run WHERE run.delivery_id IN (SELECT value FROM json_each(?))
--> SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH failure USING COVERING INDEX failure_run_id_idx (run_id=?)

-- counting/retention.py prune
SELECT DISTINCT delivery.event_type
FROM delivery
WHERE delivery.state IN ('dead', 'quarantined') AND delivery.state = ? AND delivery.event_type IN (SELECT value FROM json_each(?))
--> SEARCH delivery USING INDEX delivery_failed_idx (state=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- counting/retention.py prune
SELECT DISTINCT failure.fingerprint
FROM failure JOIN run ON run.id = failure.run_id
WHERE run.delivery_id IN (SELECT value FROM json_each(?))
--> SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH failure USING INDEX failure_run_id_idx (run_id=?)

-- counting/retention.py prune
SELECT delivery.id, delivery.state, delivery.received_at, delivery.signed_at, delivery.event_type
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state IN ('done', 'dead', 'quarantined', 'pruned', 'erased') AND NOT (EXISTS (SELECT *
FROM run
WHERE run.delivery_id = delivery.id AND run.state IN ('waiting', 'due', 'running'))) ORDER BY delivery.id
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)

-- counting/retention.py prune
UPDATE delivery SET also_sent_as=?, headers=?, state=?, error=?, identifier_1=?, identifier_2=?, identifier_3=?, body=? WHERE delivery.id IN (SELECT value FROM json_each(?))
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- counting/unconsumed.py read_unconsumed
SELECT DISTINCT billhook_count.handler
FROM billhook_count
WHERE billhook_count.what = ? AND billhook_count.hour >= ? AND billhook_count.last_at >= ? ORDER BY billhook_count.handler
--> SEARCH billhook_count USING PRIMARY KEY (hour>?)

-- inbox.py Inbox._commit_nothing
UPDATE billhook_version SET version_num=billhook_version.version_num
--> SCAN billhook_version

-- operating/actions.py ActionRecorder.add
UPDATE billhook_action SET which=?, deliveries=? WHERE billhook_action.id = ?
--> SEARCH billhook_action USING INTEGER PRIMARY KEY (rowid=?)

-- operating/actions.py issues_acted_on
SELECT billhook_issue.fingerprint, billhook_issue.title
FROM billhook_issue
WHERE billhook_issue.fingerprint IN (SELECT value FROM json_each(?))
--> SEARCH billhook_issue USING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/actions.py list_actions
SELECT billhook_action.id, billhook_action.at, billhook_action.who, billhook_action.what, billhook_action.which, billhook_action.deliveries
FROM billhook_action
WHERE billhook_action.id < ? AND billhook_action.at >= ? ORDER BY billhook_action.id DESC
 LIMIT ? OFFSET ?
--> SEARCH billhook_action USING INTEGER PRIMARY KEY (rowid<?)

-- operating/actions.py prune_actions
DELETE FROM billhook_action WHERE billhook_action.at < ?
--> SCAN billhook_action

-- operating/actions.py recorded
INSERT INTO billhook_action (at, who, what, which) VALUES (?, ?, ?, ?) RETURNING id

-- operating/batches.py change_states
UPDATE delivery SET also_sent_as=?, headers=?, state=?, error=?, digest=?, identifier_1=?, identifier_2=?, identifier_3=?, body=? WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state IN ('done')
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/batches.py change_states
UPDATE delivery SET also_sent_as=?, state=?, error=? WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state IN ('dead')
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/batches.py change_states
UPDATE delivery SET also_sent_as=?, state=?, error=? WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state IN ('done')
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/batches.py change_states
UPDATE delivery SET also_sent_as=?, state=?, error=? WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state IN ('done', 'quarantined')
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/batches.py change_states
UPDATE delivery SET also_sent_as=?, state=?, error=? WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state IN ('received')
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/batches.py change_states
UPDATE delivery SET event_type=?, sent_as=coalesce(delivery.sent_as, delivery.event_type), also_sent_as=?, state=?, error=? WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state IN ('quarantined')
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/batches.py states_of
SELECT delivery.id, delivery.state
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state IN ('done', 'dead', 'quarantined')
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/batches.py states_of
SELECT delivery.id, delivery.state
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state IN ('planned', 'done', 'dead')
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/batches.py states_of
SELECT delivery.id, delivery.state
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state IN ('planned', 'done', 'dead', 'quarantined')
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/batches.py states_of
SELECT delivery.id, delivery.state
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state IN ('planned', 'done', 'dead', 'quarantined') AND (delivery.event_type != ? OR delivery.type_field IS NOT NULL)
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/batches.py states_of
SELECT delivery.id, delivery.state
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state IN ('planned', 'done', 'dead', 'quarantined') AND delivery.event_type = ? AND delivery.conflict_of IS NULL
--> SEARCH delivery USING INDEX delivery_event_type_id_idx (event_type=? AND id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/batches.py states_of
SELECT delivery.id, delivery.state
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state IN ('received', 'planned')
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/batches.py states_of
SELECT delivery.id, delivery.state
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state IN ('received', 'quarantined', 'planned', 'dead')
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/holds.py hold_worker
UPDATE billhook_worker SET held_at=?, held_why=? WHERE billhook_worker.owner = ? AND billhook_worker.stopped_at IS NULL AND billhook_worker.held_at IS NULL
--> SEARCH billhook_worker USING INDEX sqlite_autoindex_billhook_worker_1 (owner=?)

-- operating/holds.py hold_worker
UPDATE billhook_worker SET held_why=? WHERE billhook_worker.owner = ? AND billhook_worker.stopped_at IS NULL
--> SEARCH billhook_worker USING INDEX sqlite_autoindex_billhook_worker_1 (owner=?)

-- operating/holds.py resume_worker
UPDATE billhook_worker SET held_at=?, held_why=? WHERE billhook_worker.owner = ? AND billhook_worker.held_at IS NOT NULL
--> SEARCH billhook_worker USING INDEX sqlite_autoindex_billhook_worker_1 (owner=?)

-- operating/operations.py _discard
DELETE FROM run WHERE run.id IN (SELECT value FROM json_each(?))
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH failure USING COVERING INDEX failure_run_id_idx (run_id=?)

-- operating/operations.py _discard
SELECT run.id, run.delivery_id, run.state, run.handler, run.order_key, run.newest_only
FROM run
WHERE run.delivery_id IN (SELECT value FROM json_each(?)) AND run.state IN ('waiting', 'due', 'running', 'dead') ORDER BY run.id
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/operations.py _discard
UPDATE run SET state=?, queued=?, token=(run.token + ?), last_error=?, finished_at=?, beside_others=?, duration_seconds=? WHERE run.id IN (SELECT value FROM json_each(?)) AND run.state IN ('waiting', 'due', 'running', 'dead')
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/operations.py _first_plans
SELECT delivery.id, delivery.event_type
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) ORDER BY delivery.id
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/operations.py _first_runs
-- operating/takeover.py take_over
SELECT delivery.id, delivery.source, delivery."key", delivery.event_type, delivery.body, delivery.headers, delivery.signed_at, delivery.received_at, delivery.variant, delivery.sent_as, delivery.type_field
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) ORDER BY delivery.id
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/operations.py _ids_of
SELECT run.id
FROM run
WHERE run.delivery_id IN (SELECT value FROM json_each(?)) AND run.handler IN (SELECT value FROM json_each(?))
--> SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (delivery_id=? AND handler=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/operations.py _make_due
UPDATE run SET due_at=? WHERE run.id = ?
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)

-- operating/operations.py _make_due
UPDATE run SET state=CASE WHEN (run.order_key IS NOT NULL AND run.state != ?) THEN ? ELSE ? END, attempts=?, due_at=?, not_before=?, queued=?, token=(run.token + ?), finished_at=?, runs_alone=?, beside_others=?, uncounted_attempts=?, postponements=?, replays=(run.replays + CASE WHEN (run.state = ?) THEN ? ELSE ? END) WHERE run.id IN (SELECT value FROM json_each(?)) AND run.state IN (?, ?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/operations.py _make_due
UPDATE run SET state=CASE WHEN (run.order_key IS NOT NULL AND run.state != ?) THEN ? ELSE ? END, attempts=?, due_at=?, not_before=?, queued=?, token=(run.token + ?), finished_at=?, runs_alone=?, beside_others=?, uncounted_attempts=?, postponements=?, replays=(run.replays + CASE WHEN (run.state = ?) THEN ? ELSE ? END) WHERE run.id IN (SELECT value FROM json_each(?)) AND run.state IN (SELECT 1 FROM (SELECT 1) WHERE 1!=1)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN CONSTANT ROW
--> SCAN (subquery-2)

-- operating/operations.py _to_read_anew
SELECT delivery.id
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) AND NOT (EXISTS (SELECT *
FROM run
WHERE run.delivery_id = delivery.id))
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)

-- operating/operations.py _without_missing
SELECT delivery.id, delivery.event_type
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?))
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/operations.py _without_run
SELECT run.delivery_id, run.handler
FROM run
WHERE run.delivery_id IN (SELECT value FROM json_each(?))
--> SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/operations.py erase
DELETE FROM failure WHERE failure.run_id IN (SELECT run.id
FROM run
WHERE run.delivery_id IN (SELECT value FROM json_each(?)))
--> SEARCH failure USING COVERING INDEX failure_run_id_idx (run_id=?)
--> SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/operations.py erase
SELECT failure.error
FROM failure
WHERE failure.run_id IN (SELECT run.id
FROM run
WHERE run.delivery_id IN (SELECT value FROM json_each(?)))
--> SEARCH failure USING INDEX failure_run_id_idx (run_id=?)
--> SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/operations.py erase
UPDATE run SET last_error=?, order_key=?, newest_key=?, identity=? WHERE run.delivery_id IN (SELECT value FROM json_each(?))
--> SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/operations.py replay
SELECT run.id, run.delivery_id, run.state, run.handler, run.order_key, run.newest_only
FROM run
WHERE run.delivery_id IN (SELECT value FROM json_each(?)) AND (run.state = ? OR run.state = ? AND run.attempts > ?) ORDER BY run.id
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/operations.py replay
SELECT run.id, run.delivery_id, run.state, run.handler, run.order_key, run.newest_only
FROM run
WHERE run.delivery_id IN (SELECT value FROM json_each(?)) AND (run.state IN ('succeeded', 'discarded', 'dead') OR run.state = ? AND run.attempts > ?) ORDER BY run.id
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/operations.py replay
SELECT run.id, run.delivery_id, run.state, run.handler, run.order_key, run.newest_only
FROM run
WHERE run.delivery_id IN (SELECT value FROM json_each(?)) AND run.handler IN (SELECT ? AS anon_1 UNION SELECT coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?) AS coalesce_1 UNION SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.renamed_to = coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?)) AND (run.state = ? OR run.state = ? AND run.attempts > ?) AND (run.state IN ('due', 'running') AND run.state = ? AND run.attempts > ? AND (EXISTS (SELECT *
FROM failure
WHERE failure.run_id = run.id AND failure.failed_at >= ?)) OR run.state IN ('dead') AND ((EXISTS (SELECT *
FROM failure
WHERE failure.run_id = run.id AND failure.failed_at >= ?)) OR run.finished_at >= ?)) ORDER BY run.id
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=? AND handler=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN CONSTANT ROW
--> SCAN CONSTANT ROW
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SEARCH failure USING INDEX failure_run_id_idx (run_id=?)
--> SEARCH failure USING INDEX failure_run_id_idx (run_id=?)

-- operating/operations.py replay
SELECT run.id, run.delivery_id, run.state, run.handler, run.order_key, run.newest_only
FROM run
WHERE run.delivery_id IN (SELECT value FROM json_each(?)) AND run.handler IN (SELECT ? AS anon_1 UNION SELECT coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?) AS coalesce_1 UNION SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.renamed_to = coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?)) AND (run.state = ? OR run.state = ? AND run.attempts > ?) ORDER BY run.id
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=? AND handler=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN CONSTANT ROW
--> SCAN CONSTANT ROW
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)

-- operating/operations.py replay
SELECT run.id, run.delivery_id, run.state, run.handler, run.order_key, run.newest_only
FROM run
WHERE run.delivery_id IN (SELECT value FROM json_each(?)) AND run.handler IN (SELECT ? AS anon_1 UNION SELECT coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?) AS coalesce_1 UNION SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.renamed_to = coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?)) AND (run.state IN ('succeeded', 'discarded', 'dead') OR run.state = ? AND run.attempts > ?) ORDER BY run.id
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=? AND handler=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN CONSTANT ROW
--> SCAN CONSTANT ROW
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)

-- operating/operations.py store_edited
INSERT INTO delivery (source, "key", event_type, sent_as, edited_from, headers, state, received_at, digest, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id
--> SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (delivery_id=?)

-- operating/postpone.py _count_behind
SELECT count(distinct(other.delivery_id)) AS count_1
FROM run JOIN run AS other ON other.handler = run.handler AND other.order_key = run.order_key
WHERE other.order_key IS NOT NULL AND other.state IN ('waiting', 'due', 'running') AND other.state = ? AND other.delivery_id > run.delivery_id AND other.id IN (SELECT value FROM json_each(?)) = 0 AND run.id IN (SELECT value FROM json_each(?))
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH other USING COVERING INDEX run_order_idx (handler=? AND order_key=? AND state=? AND delivery_id>?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/postpone.py postpone
SELECT run.id, run.delivery_id, run.state, run.handler, run.order_key
FROM run
WHERE run.delivery_id IN (SELECT value FROM json_each(?)) AND run.state IN ('waiting', 'due', 'running') AND run.handler IN (SELECT ? AS anon_1 UNION SELECT coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?) AS coalesce_1 UNION SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.renamed_to = coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?)) ORDER BY run.id
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=? AND handler=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN CONSTANT ROW
--> SCAN CONSTANT ROW
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)

-- operating/postpone.py postpone
SELECT run.id, run.delivery_id, run.state, run.handler, run.order_key
FROM run
WHERE run.delivery_id IN (SELECT value FROM json_each(?)) AND run.state IN ('waiting', 'due', 'running') ORDER BY run.id
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/subscriptions.py forget
DELETE FROM billhook_subscription WHERE billhook_subscription.id IN (SELECT value FROM json_each(?))
--> SEARCH billhook_subscription USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/subscriptions.py list_subscriptions
SELECT billhook_subscription.id, billhook_subscription.at, billhook_subscription.who, billhook_subscription.service, billhook_subscription.url, billhook_subscription.digest, billhook_subscription.event_type, billhook_subscription.threshold, billhook_subscription.recurring_threshold
FROM billhook_subscription ORDER BY billhook_subscription.id
--> SCAN billhook_subscription

-- operating/subscriptions.py remember
DELETE FROM billhook_subscription WHERE billhook_subscription.service = ? AND billhook_subscription.url = ? AND billhook_subscription.digest = ? AND billhook_subscription.event_type = ? AND billhook_subscription.threshold = ? AND billhook_subscription.recurring_threshold = ?
--> SCAN billhook_subscription

-- operating/subscriptions.py remember
INSERT INTO billhook_subscription (at, who, service, url, digest, event_type, threshold, recurring_threshold) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- operating/takeover.py _having
SELECT run.delivery_id
FROM run
WHERE run.delivery_id IN (SELECT value FROM json_each(?)) AND run.handler IN (SELECT value FROM json_each(?))
--> SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (delivery_id=? AND handler=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/takeover.py _rename
UPDATE delivery SET also_sent_as=?, state=?, error=? WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state = ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/takeover.py _rename
UPDATE failure SET retried=? WHERE failure.run_id IN (SELECT value FROM json_each(?))
--> SEARCH failure USING COVERING INDEX failure_run_id_idx (run_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- operating/takeover.py _runs
SELECT run.id, run.delivery_id, run.state, run.handler, run.order_key, delivery.state AS "of"
FROM run JOIN delivery ON delivery.id = run.delivery_id
WHERE run.delivery_id IN (SELECT value FROM json_each(?)) AND delivery.state IN ('planned', 'done', 'dead') AND run.handler IN (SELECT value FROM json_each(?)) AND run.state != ? ORDER BY run.delivery_id
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=? AND handler=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)

-- reading/compared_deliveries.py _deliveries
SELECT billhook_release.id, billhook_release.name
FROM billhook_release
WHERE billhook_release.id IN (SELECT value FROM json_each(?))
--> SEARCH billhook_release USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- reading/compared_deliveries.py _deliveries
SELECT delivery.id, delivery.body
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?))
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- reading/compared_deliveries.py _deliveries
SELECT delivery.id, delivery.event_type, delivery.source, length(delivery.body) AS length_1
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.digest IS NOT NULL ORDER BY delivery.id DESC
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- reading/compared_deliveries.py read_compared
SELECT run.delivery_id, failure.worker, failure.release_id
FROM failure JOIN run ON run.id = failure.run_id
WHERE failure.fingerprint = ? ORDER BY failure.id DESC
 LIMIT ? OFFSET ?
--> SEARCH failure USING INDEX failure_fingerprint_idx (fingerprint=?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)

-- reading/compared_deliveries.py read_compared
SELECT run.delivery_id, run.worker, run.release_id
FROM run
WHERE run.delivery_id > ? AND run.handler IN (SELECT ? AS anon_1 UNION SELECT coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?) AS coalesce_1 UNION SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.renamed_to = coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?)) AND run.state = ? AND run.attempts = ? AND run.replays = ? ORDER BY run.delivery_id DESC
 LIMIT ? OFFSET ?
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id>?)
--> SCAN CONSTANT ROW
--> SCAN CONSTANT ROW
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)

-- reading/deliveries.py NewIds.__init__
SELECT delivery.id
FROM delivery
WHERE 1 = 1 ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SCAN delivery

-- reading/deliveries.py NewIds.__init__
SELECT delivery.id
FROM delivery
WHERE delivery.id <= ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid<?)

-- reading/deliveries.py NewIds.poll
-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.id > ? ORDER BY delivery.id
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid>?)

-- reading/deliveries.py _runs
SELECT run.delivery_id, run.id, run.handler, run.state, run.attempts, run.due_at, run.finished_at, run.last_error, run.order_key, run.twin_of, run.state IN ('waiting', 'due') AND run.handler IN (SELECT coalesce(billhook_handler.renamed_to, billhook_handler.name) AS coalesce_1
FROM billhook_handler
WHERE billhook_handler.paused_at IS NOT NULL UNION ALL SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.paused_at IS NOT NULL OR billhook_handler.renamed_to IN (SELECT coalesce(billhook_handler.renamed_to, billhook_handler.name) AS coalesce_1
FROM billhook_handler
WHERE billhook_handler.paused_at IS NOT NULL)) AS paused, run.started_at, run.duration_seconds, run.worker, (SELECT nullif(billhook_release.name, ?) AS nullif_1
FROM billhook_release
WHERE billhook_release.id = run.release_id) AS release, run.not_before, (SELECT billhook_handler.next_start_at
FROM billhook_handler
WHERE billhook_handler.name = run.handler) AS anon_1
FROM run
WHERE run.delivery_id IN (SELECT value FROM json_each(?)) ORDER BY run.id
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN billhook_handler
--> SCAN billhook_handler
--> SCAN billhook_handler
--> SEARCH billhook_release USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)

-- reading/deliveries.py _selected
SELECT delivery.id
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.event_type = ? ORDER BY delivery.id
--> SEARCH delivery USING COVERING INDEX delivery_event_type_id_idx (event_type=? AND id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- reading/deliveries.py _selected
SELECT delivery.id
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.type_field IS NOT NULL AND delivery.state IN ('received') AND delivery.event_type = ? ORDER BY delivery.id
--> SEARCH delivery USING INDEX delivery_event_type_id_idx (event_type=? AND id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- reading/deliveries.py count
SELECT count(*) AS count_1
FROM delivery
--> SCAN delivery USING COVERING INDEX delivery_event_type_id_idx

-- reading/deliveries.py details
SELECT delivery.id, delivery.source, delivery."key", delivery.event_type, delivery.state, delivery.received_at, delivery.signed_at, length(delivery.body) AS body_bytes, (SELECT min(run.twin_of) AS min_1
FROM run
WHERE run.delivery_id = delivery.id) AS twin_of, delivery.conflict_of, delivery.sent_as, delivery.edited_from, delivery.type_field, delivery.identifier_1, delivery.identifier_2, delivery.identifier_3, delivery.body, delivery.headers, delivery.error
FROM delivery
WHERE delivery.id IN (?) ORDER BY delivery.id
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)

-- reading/deliveries.py details
SELECT delivery.id, delivery.source, delivery."key", delivery.event_type, delivery.state, delivery.received_at, delivery.signed_at, length(delivery.body) AS body_bytes, (SELECT min(run.twin_of) AS min_1
FROM run
WHERE run.delivery_id = delivery.id) AS twin_of, delivery.conflict_of, delivery.sent_as, delivery.edited_from, delivery.type_field, delivery.identifier_1, delivery.identifier_2, delivery.identifier_3, delivery.body, delivery.headers, delivery.error
FROM delivery
WHERE delivery.id IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ORDER BY delivery.id
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)

-- reading/deliveries.py details
SELECT delivery.id, delivery.source, delivery."key", delivery.event_type, delivery.state, delivery.received_at, delivery.signed_at, length(delivery.body) AS body_bytes, (SELECT min(run.twin_of) AS min_1
FROM run
WHERE run.delivery_id = delivery.id) AS twin_of, delivery.conflict_of, delivery.sent_as, delivery.edited_from, delivery.type_field, delivery.identifier_1, delivery.identifier_2, delivery.identifier_3, delivery.body, delivery.headers, delivery.error
FROM delivery
WHERE delivery.id IN (SELECT 1 FROM (SELECT 1) WHERE 1!=1) ORDER BY delivery.id
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN CONSTANT ROW
--> SCAN (subquery-2)
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)

-- reading/deliveries.py details
SELECT failure.run_id, failure.attempt, failure.failed_at, failure.error, failure.traceback, failure.duration_seconds, failure.fingerprint AS issue, failure.worker, (SELECT nullif(billhook_release.name, ?) AS nullif_1
FROM billhook_release
WHERE billhook_release.id = failure.release_id) AS release
FROM failure JOIN run ON run.id = failure.run_id
WHERE run.delivery_id IN (SELECT value FROM json_each(?)) ORDER BY failure.id
--> SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH failure USING INDEX failure_run_id_idx (run_id=?)
--> SEARCH billhook_release USING INTEGER PRIMARY KEY (rowid=?)

-- reading/deliveries.py id_batches
SELECT coalesce(max(delivery.id), ?) AS coalesce_1
FROM delivery
--> SEARCH delivery

-- reading/deliveries.py is_busy
SELECT delivery.id
FROM delivery
WHERE delivery.state IN ('received')
 LIMIT ? OFFSET ?
--> SCAN delivery USING COVERING INDEX delivery_received_idx

-- reading/deliveries.py is_busy
SELECT delivery.id
FROM delivery
WHERE delivery.state IN ('received') AND coalesce(delivery.event_type, ?) IN (SELECT value FROM json_each(?))
 LIMIT ? OFFSET ?
--> SCAN delivery USING COVERING INDEX delivery_turn_idx
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- reading/deliveries.py is_busy
SELECT delivery.id
FROM delivery
WHERE delivery.state IN ('received') AND coalesce(delivery.event_type, ?) IN (SELECT value FROM json_each(?)) = 0
 LIMIT ? OFFSET ?
--> SCAN delivery USING COVERING INDEX delivery_turn_idx
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- reading/deliveries.py summaries
SELECT delivery.id, delivery.source, delivery."key", delivery.event_type, delivery.state, delivery.received_at, delivery.signed_at, length(delivery.body) AS body_bytes, (SELECT min(run.twin_of) AS min_1
FROM run
WHERE run.delivery_id = delivery.id) AS twin_of, delivery.conflict_of, delivery.sent_as, delivery.edited_from, delivery.type_field, delivery.identifier_1, delivery.identifier_2, delivery.identifier_3
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) ORDER BY delivery.id
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)

-- reading/deliveries.py with_runs
SELECT delivery.id, delivery.error
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.error IS NOT NULL
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- reading/handler_shares.py first_release
SELECT billhook_release.name
FROM billhook_release JOIN failure ON failure.release_id = billhook_release.id
WHERE failure.fingerprint = ? ORDER BY failure.id
 LIMIT ? OFFSET ?
--> SEARCH failure USING INDEX failure_fingerprint_idx (fingerprint=?)
--> SEARCH billhook_release USING INTEGER PRIMARY KEY (rowid=?)

-- reading/handler_shares.py known_issues
SELECT billhook_issue.fingerprint
FROM billhook_issue
WHERE billhook_issue.fingerprint IN (SELECT value FROM json_each(?))
--> SEARCH billhook_issue USING COVERING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- reading/handler_shares.py read_share
SELECT run.delivery_id
FROM run
WHERE run.delivery_id >= ? AND run.handler = ? ORDER BY run.delivery_id DESC
 LIMIT ? OFFSET ?
--> SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (delivery_id>?)

-- reading/handler_shares.py read_share
SELECT run.delivery_id
FROM run JOIN failure ON failure.run_id = run.id
WHERE run.handler = ? AND failure.fingerprint = ? ORDER BY failure.id DESC
 LIMIT ? OFFSET ?
--> SEARCH failure USING COVERING INDEX failure_fingerprint_idx (fingerprint=?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)

-- reading/search_scope.py _in_bodies
SELECT delivery.id
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state IN ('received') AND instr(delivery.body, ?) > ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- reading/search_scope.py _in_bodies
SELECT delivery.id
FROM delivery
WHERE delivery.state IN ('received') ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SCAN delivery USING COVERING INDEX delivery_received_idx

-- reading/search_scope.py read_scope
SELECT count(*) AS count_1
FROM (SELECT delivery.id AS id
FROM delivery
WHERE delivery.state IN ('received')
 LIMIT ? OFFSET ?) AS anon_1
--> SCAN delivery USING COVERING INDEX delivery_received_idx
--> SCAN anon_1

-- reading/search_scope.py read_scope
SELECT delivery.received_at
FROM delivery
WHERE (delivery.state NOT IN (?, ?)) ORDER BY delivery.id
 LIMIT ? OFFSET ?
--> SCAN delivery

-- reading/search_scope.py search_bound
SELECT count(*) AS count_1, min(anon_1.id) AS min_1, min(anon_1.received_at) AS min_2
FROM (SELECT delivery.id AS id, delivery.received_at AS received_at
FROM delivery ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?) AS anon_1
--> SCAN delivery
--> SCAN anon_1

-- reading/searches.py newest_deliveries
SELECT delivery.id, delivery.source, delivery."key", delivery.event_type, delivery.body, delivery.headers, delivery.signed_at, delivery.received_at, delivery.variant, delivery.sent_as, delivery.type_field
FROM delivery JOIN (SELECT anon_2.id AS id, sum(anon_2.size) OVER (ORDER BY anon_2.id DESC) AS bytes
FROM (SELECT delivery.id AS id, length(delivery.body) AS size
FROM delivery
WHERE (delivery.state NOT IN ('pruned', 'erased')) AND NOT (delivery.type_field IS NOT NULL AND delivery.state IN ('received') AND delivery.event_type = ?) AND length(delivery.body) <= ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?) AS anon_2) AS anon_1 ON anon_1.id = delivery.id
WHERE anon_1.bytes <= ? ORDER BY delivery.id DESC
--> SCAN delivery
--> SCAN anon_2
--> SCAN (subquery-4)
--> SCAN anon_1
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)

-- reading/searches.py read_bodies
SELECT delivery.id, delivery.event_type, delivery.state, delivery.body, delivery.type_field
FROM delivery
WHERE (delivery.event_type IN (SELECT value FROM json_each(?)) OR delivery.type_field IS NOT NULL AND delivery.state IN ('received') AND delivery.event_type = ?) AND delivery.received_at >= ? AND delivery.id > ? ORDER BY delivery.id
 LIMIT ? OFFSET ?
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH delivery USING INDEX delivery_event_type_id_idx (event_type=? AND id>?)
--> SEARCH delivery USING INDEX delivery_event_type_id_idx (event_type=? AND id>?)

-- reading/searches.py related_deliveries
SELECT delivery.id
FROM delivery
WHERE delivery.source = ? AND delivery."key" = ? AND delivery.id != ?
 LIMIT ? OFFSET ?
--> SEARCH delivery USING COVERING INDEX sqlite_autoindex_delivery_1 (source=? AND key=?)

-- reading/searches.py related_deliveries
SELECT run.delivery_id
FROM run
WHERE run.delivery_id BETWEEN ? AND ? AND run.delivery_id != ? AND run.handler = ? AND run.order_key = ? AND run.delivery_id < ? ORDER BY run.delivery_id DESC
 LIMIT ? OFFSET ?
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id>? AND delivery_id<?)

-- reading/searches.py related_deliveries
SELECT run.delivery_id
FROM run
WHERE run.delivery_id BETWEEN ? AND ? AND run.delivery_id != ? AND run.handler = ? AND run.order_key = ? AND run.delivery_id > ? ORDER BY run.delivery_id
 LIMIT ? OFFSET ?
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id>? AND delivery_id<?)

-- reading/searches.py search_bodies
SELECT delivery.id, delivery.event_type, delivery.body
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) AND instr(delivery.body, ?) > ? ORDER BY delivery.id
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- reading/worker_list.py list_workers
SELECT run.worker, run.delivery_id, run.handler, run.started_at
FROM run
WHERE run.state IN ('due', 'running') AND run.state = ? ORDER BY run.id
 LIMIT ? OFFSET ?
--> SEARCH run USING INDEX run_claim_idx (state=?)

-- running/claims.py _find
SELECT run.id AS run_id, run.token, run.handler, run.attempts, run.queued, run.delivery_id, run.due_at, run.runs_alone, run.uncounted_attempts, run.postponements, run.replays, run.order_key, delivery.id, delivery.source, delivery."key", delivery.event_type, delivery.body, delivery.headers, delivery.signed_at, delivery.received_at, delivery.variant, delivery.sent_as, delivery.type_field
FROM json_each(?) AS wanted JOIN run ON run.id IN (SELECT own.id
FROM run AS own
WHERE own.state = 'due' AND own.handler = wanted.value AND own.due_at <= ? AND NOT (EXISTS (SELECT *
FROM billhook_handler
WHERE billhook_handler.name = own.handler AND billhook_handler.paused_at IS NOT NULL)) AND own.delivery_id = ? AND own.state IN ('due', 'running') AND own.runs_alone = ? ORDER BY own.due_at, own.id
 LIMIT ? OFFSET ?) JOIN delivery ON delivery.id = run.delivery_id
--> SCAN wanted VIRTUAL TABLE INDEX 1:
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH own USING INDEX sqlite_autoindex_run_1 (delivery_id=? AND handler=?)
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)

-- running/claims.py _find
SELECT run.id AS run_id, run.token, run.handler, run.attempts, run.queued, run.delivery_id, run.due_at, run.runs_alone, run.uncounted_attempts, run.postponements, run.replays, run.order_key, delivery.id, delivery.source, delivery."key", delivery.event_type, delivery.body, delivery.headers, delivery.signed_at, delivery.received_at, delivery.variant, delivery.sent_as, delivery.type_field
FROM json_each(?) AS wanted JOIN run ON run.id IN (SELECT own.id
FROM run AS own
WHERE own.state = 'due' AND own.handler = wanted.value AND own.due_at <= ? AND NOT (EXISTS (SELECT *
FROM billhook_handler
WHERE billhook_handler.name = own.handler AND billhook_handler.paused_at IS NOT NULL)) AND own.delivery_id = ? AND own.state IN ('due', 'running') ORDER BY own.due_at, own.id
 LIMIT ? OFFSET ?) JOIN delivery ON delivery.id = run.delivery_id
--> SCAN wanted VIRTUAL TABLE INDEX 1:
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH own USING INDEX sqlite_autoindex_run_1 (delivery_id=? AND handler=?)
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)

-- running/claims.py _find
SELECT run.id AS run_id, run.token, run.handler, run.attempts, run.queued, run.delivery_id, run.due_at, run.runs_alone, run.uncounted_attempts, run.postponements, run.replays, run.order_key, delivery.id, delivery.source, delivery."key", delivery.event_type, delivery.body, delivery.headers, delivery.signed_at, delivery.received_at, delivery.variant, delivery.sent_as, delivery.type_field
FROM json_each(?) AS wanted JOIN run ON run.id IN (SELECT own.id
FROM run AS own
WHERE own.state = 'due' AND own.handler = wanted.value AND own.due_at <= ? AND NOT (EXISTS (SELECT *
FROM billhook_handler
WHERE billhook_handler.name = own.handler AND billhook_handler.paused_at IS NOT NULL)) AND own.state IN ('due', 'running') AND own.due_at >= ? AND own.runs_alone = ? ORDER BY own.due_at, own.id
 LIMIT ? OFFSET ?) JOIN delivery ON delivery.id = run.delivery_id
--> SCAN wanted VIRTUAL TABLE INDEX 1:
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH own USING INDEX run_claim_idx (state=? AND handler=? AND due_at>? AND due_at<?)
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)

-- running/claims.py _find
SELECT run.id AS run_id, run.token, run.handler, run.attempts, run.queued, run.delivery_id, run.due_at, run.runs_alone, run.uncounted_attempts, run.postponements, run.replays, run.order_key, delivery.id, delivery.source, delivery."key", delivery.event_type, delivery.body, delivery.headers, delivery.signed_at, delivery.received_at, delivery.variant, delivery.sent_as, delivery.type_field
FROM json_each(?) AS wanted JOIN run ON run.id IN (SELECT own.id
FROM run AS own
WHERE own.state = 'due' AND own.handler = wanted.value AND own.due_at <= ? AND NOT (EXISTS (SELECT *
FROM billhook_handler
WHERE billhook_handler.name = own.handler AND billhook_handler.paused_at IS NOT NULL)) AND own.state IN ('due', 'running') AND own.runs_alone = ? ORDER BY own.due_at, own.id
 LIMIT ? OFFSET ?) JOIN delivery ON delivery.id = run.delivery_id
--> SCAN wanted VIRTUAL TABLE INDEX 1:
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH own USING INDEX run_claim_idx (state=? AND handler=? AND due_at<?)
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)

-- running/claims.py _find
SELECT run.id AS run_id, run.token, run.handler, run.attempts, run.queued, run.delivery_id, run.due_at, run.runs_alone, run.uncounted_attempts, run.postponements, run.replays, run.order_key, delivery.id, delivery.source, delivery."key", delivery.event_type, delivery.body, delivery.headers, delivery.signed_at, delivery.received_at, delivery.variant, delivery.sent_as, delivery.type_field
FROM json_each(?) AS wanted JOIN run ON run.id IN (SELECT own.id
FROM run AS own
WHERE own.state = 'due' AND own.handler = wanted.value AND own.due_at <= ? AND NOT (EXISTS (SELECT *
FROM billhook_handler
WHERE billhook_handler.name = own.handler AND billhook_handler.paused_at IS NOT NULL)) AND own.state IN ('due', 'running') ORDER BY own.due_at, own.id
 LIMIT ? OFFSET ?) JOIN delivery ON delivery.id = run.delivery_id
--> SCAN wanted VIRTUAL TABLE INDEX 1:
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH own USING COVERING INDEX run_claim_idx (state=? AND handler=? AND due_at<?)
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)

-- running/claims.py find_suspect
WITH few AS
(SELECT run.id AS run_id, run.token AS token, run.handler AS handler, run.attempts AS attempts, run.queued AS queued, run.delivery_id AS delivery_id, run.due_at AS due_at, run.runs_alone AS runs_alone, run.uncounted_attempts AS uncounted_attempts, run.postponements AS postponements, run.replays AS replays, run.order_key AS order_key
FROM run
WHERE run.runs_alone = 1 AND run.state IN ('due') AND run.handler IN (SELECT value FROM json_each(?)) AND CAST(run.id AS TEXT) || ? || CAST(run.token AS TEXT) IN (SELECT value FROM json_each(?)) = 0 AND run.due_at <= ? AND NOT (EXISTS (SELECT *
FROM billhook_handler
WHERE billhook_handler.name = run.handler AND billhook_handler.paused_at IS NOT NULL)) AND run.delivery_id = ? ORDER BY run.beside_others, run.attempts - run.uncounted_attempts, run.due_at, run.id
 LIMIT ? OFFSET ?)
 SELECT few.run_id, few.token, few.handler, few.attempts, few.queued, few.delivery_id, few.due_at, few.runs_alone, few.uncounted_attempts, few.postponements, few.replays, few.order_key, delivery.id, delivery.source, delivery."key", delivery.event_type, delivery.body, delivery.headers, delivery.signed_at, delivery.received_at, delivery.variant, delivery.sent_as, delivery.type_field
FROM few JOIN delivery ON delivery.id = few.delivery_id
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=? AND handler=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN few
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)

-- running/claims.py find_suspect
WITH few AS
(SELECT run.id AS run_id, run.token AS token, run.handler AS handler, run.attempts AS attempts, run.queued AS queued, run.delivery_id AS delivery_id, run.due_at AS due_at, run.runs_alone AS runs_alone, run.uncounted_attempts AS uncounted_attempts, run.postponements AS postponements, run.replays AS replays, run.order_key AS order_key
FROM run
WHERE run.runs_alone = 1 AND run.state IN ('due') AND run.handler IN (SELECT value FROM json_each(?)) AND CAST(run.id AS TEXT) || ? || CAST(run.token AS TEXT) IN (SELECT value FROM json_each(?)) = 0 AND run.due_at <= ? AND NOT (EXISTS (SELECT *
FROM billhook_handler
WHERE billhook_handler.name = run.handler AND billhook_handler.paused_at IS NOT NULL)) ORDER BY run.beside_others, run.attempts - run.uncounted_attempts, run.due_at, run.id
 LIMIT ? OFFSET ?)
 SELECT few.run_id, few.token, few.handler, few.attempts, few.queued, few.delivery_id, few.due_at, few.runs_alone, few.uncounted_attempts, few.postponements, few.replays, few.order_key, delivery.id, delivery.source, delivery."key", delivery.event_type, delivery.body, delivery.headers, delivery.signed_at, delivery.received_at, delivery.variant, delivery.sent_as, delivery.type_field
FROM few JOIN delivery ON delivery.id = few.delivery_id
--> SEARCH run USING INDEX run_alone_idx (due_at<?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN few
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)

-- running/content_duplicates.py find_duplicates
SELECT run.handler, run.identity, run.delivery_id, delivery.received_at
FROM run JOIN delivery ON delivery.id = run.delivery_id
WHERE run.handler IN (SELECT value FROM json_each(?)) AND run.identity IN (SELECT value FROM json_each(?)) AND run.identity IS NOT NULL AND run.twin_of IS NULL AND delivery.received_at >= ? ORDER BY run.id
--> SEARCH run USING INDEX run_identity_idx (handler=? AND identity=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)

-- running/due.py count_running
SELECT run.handler, count(*) AS count_1
FROM run
WHERE run.state IN ('due', 'running') AND run.state = ? AND run.handler IN (SELECT value FROM json_each(?)) GROUP BY run.handler
--> SEARCH run USING COVERING INDEX run_claim_idx (state=? AND handler=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/due.py count_unfinished
SELECT count(*) AS count_1
FROM (SELECT delivery.id AS id
FROM delivery
WHERE delivery.state IN ('received', 'planned')
 LIMIT ? OFFSET ?) AS anon_1
--> SCAN delivery USING INDEX delivery_unfinished_idx
--> SCAN anon_1

-- running/due.py next_times
SELECT CASE WHEN state = 'due' AND runs_alone = 1 THEN 'suspect' ELSE state END, handler, min(due_at) FROM run WHERE delivery_id = ? AND state IN ('due', 'running') GROUP BY 1, 2
    UNION ALL SELECT 'paused', name, paused_at FROM billhook_handler WHERE paused_at IS NOT NULL
    UNION ALL SELECT 'start', name, next_start_at FROM billhook_handler WHERE next_start_at IS NOT NULL
    UNION ALL SELECT 'held', owner, held_at FROM billhook_worker WHERE held_at IS NOT NULL
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN billhook_handler
--> SCAN billhook_handler
--> SCAN billhook_worker USING COVERING INDEX billhook_worker_held_idx

-- running/due.py next_times
WITH RECURSIVE due (handler) AS (
        SELECT (SELECT handler FROM run WHERE state IN ('due', 'running') AND state = 'due' ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM run WHERE state IN ('due', 'running') AND state = 'due' AND run.handler > due.handler
            ORDER BY handler LIMIT 1
        ) FROM due WHERE due.handler IS NOT NULL
    ), running (handler) AS (
        SELECT (SELECT handler FROM run WHERE state IN ('due', 'running') AND state = 'running' ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM run WHERE state IN ('due', 'running') AND state = 'running' AND run.handler > running.handler
            ORDER BY handler LIMIT 1
        ) FROM running WHERE running.handler IS NOT NULL
    ) SELECT 'due' AS kind, handler, (
    SELECT due_at FROM run WHERE state IN ('due', 'running') AND state = 'due' AND run.handler = due.handler AND runs_alone = 0 ORDER BY due_at LIMIT 1
) FROM due WHERE handler IS NOT NULL UNION ALL SELECT 'running' AS kind, handler, (
    SELECT due_at FROM run WHERE state IN ('due', 'running') AND state = 'running' AND run.handler = running.handler  ORDER BY due_at LIMIT 1
) FROM running WHERE handler IS NOT NULL UNION ALL SELECT 'suspect', handler, min(due_at) FROM run WHERE runs_alone = 1 AND state IN ('due') GROUP BY handler
    UNION ALL SELECT 'paused', name, paused_at FROM billhook_handler WHERE paused_at IS NOT NULL
    UNION ALL SELECT 'start', name, next_start_at FROM billhook_handler WHERE next_start_at IS NOT NULL
    UNION ALL SELECT 'held', owner, held_at FROM billhook_worker WHERE held_at IS NOT NULL
--> SCAN CONSTANT ROW
--> SEARCH run USING COVERING INDEX run_claim_idx (state=?)
--> SCAN due
--> SEARCH run USING COVERING INDEX run_claim_idx (state=? AND handler>?)
--> SCAN due
--> SEARCH run USING INDEX run_claim_idx (state=? AND handler=?)
--> SCAN CONSTANT ROW
--> SEARCH run USING COVERING INDEX run_claim_idx (state=?)
--> SCAN running
--> SEARCH run USING COVERING INDEX run_claim_idx (state=? AND handler>?)
--> SCAN running
--> SEARCH run USING COVERING INDEX run_claim_idx (state=? AND handler=?)
--> SCAN run USING INDEX run_alone_idx
--> SCAN billhook_handler
--> SCAN billhook_handler
--> SCAN billhook_worker USING COVERING INDEX billhook_worker_held_idx

-- running/due.py next_times
WITH due (handler) AS (SELECT value FROM json_each(?) AS one), running AS (SELECT handler FROM due) SELECT 'due' AS kind, handler, (
    SELECT due_at FROM run WHERE state IN ('due', 'running') AND state = 'due' AND run.handler = due.handler AND runs_alone = 0 AND due_at >= ? ORDER BY due_at LIMIT 1
) FROM due WHERE handler IS NOT NULL UNION ALL SELECT 'running' AS kind, handler, (
    SELECT due_at FROM run WHERE state IN ('due', 'running') AND state = 'running' AND run.handler = running.handler AND due_at >= ? ORDER BY due_at LIMIT 1
) FROM running WHERE handler IS NOT NULL UNION ALL SELECT 'suspect', handler, min(due_at) FROM run WHERE runs_alone = 1 AND state IN ('due') GROUP BY handler
    UNION ALL SELECT 'paused', name, paused_at FROM billhook_handler WHERE paused_at IS NOT NULL
    UNION ALL SELECT 'start', name, next_start_at FROM billhook_handler WHERE next_start_at IS NOT NULL
    UNION ALL SELECT 'held', owner, held_at FROM billhook_worker WHERE held_at IS NOT NULL
--> SCAN one VIRTUAL TABLE INDEX 1:
--> SEARCH run USING INDEX run_claim_idx (state=? AND handler=? AND due_at>?)
--> SCAN one VIRTUAL TABLE INDEX 1:
--> SEARCH run USING COVERING INDEX run_claim_idx (state=? AND handler=? AND due_at>?)
--> SCAN run USING INDEX run_alone_idx
--> SCAN billhook_handler
--> SCAN billhook_handler
--> SCAN billhook_worker USING COVERING INDEX billhook_worker_held_idx

-- running/due.py pending
SELECT delivery.id, delivery.received_at
FROM delivery
WHERE delivery.state IN ('received') AND delivery.received_at <= ? AND coalesce(delivery.event_type, ?) IN (SELECT value FROM json_each(?)) = 0 ORDER BY delivery.id
 LIMIT ? OFFSET ?
--> SCAN delivery USING INDEX delivery_received_idx
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/due.py pending
SELECT delivery.id, delivery.received_at
FROM delivery
WHERE delivery.state IN ('received') AND delivery.received_at <= ? AND coalesce(delivery.event_type, ?) IN (SELECT value FROM json_each(?)) ORDER BY delivery.id
 LIMIT ? OFFSET ?
--> SCAN delivery USING INDEX delivery_received_idx
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/due.py pending
SELECT delivery.id, delivery.received_at
FROM delivery
WHERE delivery.state IN ('received') AND delivery.received_at <= ? ORDER BY delivery.id
 LIMIT ? OFFSET ?
--> SCAN delivery USING INDEX delivery_received_idx

-- running/due.py pending
SELECT run.delivery_id, run.due_at
FROM run
WHERE run.due_at <= ? AND run.runs_alone = 1 AND run.state IN ('due') AND run.handler IN (SELECT value FROM json_each(?))
 LIMIT ? OFFSET ?
--> SEARCH run USING INDEX run_alone_idx (due_at<?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/due.py pending
SELECT run.delivery_id, run.due_at
FROM run
WHERE run.due_at <= ? AND run.state IN ('due', 'running') AND run.state = ?
 LIMIT ? OFFSET ?
--> SEARCH run USING INDEX run_claim_idx (state=?)

-- running/due.py pending
-- running/limits.py Limiter.startable
SELECT run.delivery_id, run.due_at, run.attempts
FROM run
WHERE run.state IN ('due', 'running') AND run.state = ? AND run.handler = ? AND run.due_at <= ? ORDER BY run.due_at, run.id
 LIMIT ? OFFSET ?
--> SEARCH run USING INDEX run_claim_idx (state=? AND handler=? AND due_at<?)

-- running/due.py read_unread
SELECT (SELECT max(billhook_worker.list_id) AS max_1
FROM billhook_worker
WHERE billhook_worker.stopped_at IS NULL AND billhook_worker.list_id IS NOT NULL AND billhook_worker.held_at IS NULL AND billhook_worker.seen_at > ?) AS anon_1, delivery.id, delivery.source, delivery."key", delivery.event_type, delivery.body, delivery.headers, delivery.signed_at, delivery.received_at, delivery.variant, delivery.sent_as, delivery.type_field
FROM delivery
WHERE delivery.state IN ('received') AND coalesce(delivery.event_type, ?) IN (SELECT value FROM json_each(?)) = 0 ORDER BY delivery.id
 LIMIT ? OFFSET ?
--> SCAN delivery USING INDEX delivery_received_idx
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH billhook_worker USING INDEX billhook_worker_seen_at_idx (seen_at>?)

-- running/due.py read_unread
SELECT (SELECT max(billhook_worker.list_id) AS max_1
FROM billhook_worker
WHERE billhook_worker.stopped_at IS NULL AND billhook_worker.list_id IS NOT NULL AND billhook_worker.held_at IS NULL AND billhook_worker.seen_at > ?) AS anon_1, delivery.id, delivery.source, delivery."key", delivery.event_type, delivery.body, delivery.headers, delivery.signed_at, delivery.received_at, delivery.variant, delivery.sent_as, delivery.type_field
FROM delivery
WHERE delivery.state IN ('received') AND coalesce(delivery.event_type, ?) IN (SELECT value FROM json_each(?)) ORDER BY delivery.id
 LIMIT ? OFFSET ?
--> SCAN delivery USING INDEX delivery_received_idx
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH billhook_worker USING INDEX billhook_worker_seen_at_idx (seen_at>?)

-- running/due.py read_unread
SELECT (SELECT max(billhook_worker.list_id) AS max_1
FROM billhook_worker
WHERE billhook_worker.stopped_at IS NULL AND billhook_worker.list_id IS NOT NULL AND billhook_worker.held_at IS NULL AND billhook_worker.seen_at > ?) AS anon_1, delivery.id, delivery.source, delivery."key", delivery.event_type, delivery.body, delivery.headers, delivery.signed_at, delivery.received_at, delivery.variant, delivery.sent_as, delivery.type_field
FROM delivery
WHERE delivery.state IN ('received') AND delivery.id = ? ORDER BY delivery.id
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH billhook_worker USING INDEX billhook_worker_seen_at_idx (seen_at>?)

-- running/due.py read_unread
SELECT (SELECT max(billhook_worker.list_id) AS max_1
FROM billhook_worker
WHERE billhook_worker.stopped_at IS NULL AND billhook_worker.list_id IS NOT NULL AND billhook_worker.held_at IS NULL AND billhook_worker.seen_at > ?) AS anon_1, delivery.id, delivery.source, delivery."key", delivery.event_type, delivery.body, delivery.headers, delivery.signed_at, delivery.received_at, delivery.variant, delivery.sent_as, delivery.type_field
FROM delivery
WHERE delivery.state IN ('received') AND delivery.id >= ? ORDER BY delivery.id
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INDEX delivery_received_idx (id>?)
--> SEARCH billhook_worker USING INDEX billhook_worker_seen_at_idx (seen_at>?)

-- running/due.py read_unread
SELECT (SELECT max(billhook_worker.list_id) AS max_1
FROM billhook_worker
WHERE billhook_worker.stopped_at IS NULL AND billhook_worker.list_id IS NOT NULL AND billhook_worker.held_at IS NULL AND billhook_worker.seen_at > ?) AS anon_1, delivery.id, delivery.source, delivery."key", delivery.event_type, delivery.body, delivery.headers, delivery.signed_at, delivery.received_at, delivery.variant, delivery.sent_as, delivery.type_field
FROM delivery
WHERE delivery.state IN ('received') ORDER BY delivery.id
 LIMIT ? OFFSET ?
--> SCAN delivery USING INDEX delivery_received_idx
--> SEARCH billhook_worker USING INDEX billhook_worker_seen_at_idx (seen_at>?)

-- running/due.py reset_far_due_times
UPDATE run SET due_at=CASE WHEN (run.not_before > ?) THEN run.not_before ELSE ? END WHERE run.id IN (SELECT run.id
FROM run
WHERE run.runs_alone = 1 AND run.state IN ('due') AND run.due_at > ?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING COVERING INDEX run_alone_idx (due_at>?)

-- running/due.py reset_far_due_times
UPDATE run SET due_at=CASE WHEN (run.not_before > ?) THEN run.not_before ELSE ? END WHERE run.id IN (SELECT run.id
FROM run
WHERE run.state IN ('due', 'running') AND run.state = ? AND run.handler = ? AND run.due_at > ?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING COVERING INDEX run_claim_idx (state=? AND handler=? AND due_at>?)

-- running/filters.py DeliveryFilter.ids
SELECT anon_1.id
FROM (SELECT anon_2.id AS id
FROM (SELECT found.id AS id
FROM delivery AS found
WHERE found.identifier_1 = ? AND found.id < ? ORDER BY found.id DESC
 LIMIT ? OFFSET ?) AS anon_2 UNION ALL SELECT anon_3.id AS id
FROM (SELECT found.id AS id
FROM delivery AS found
WHERE found.identifier_2 = ? AND found.id < ? ORDER BY found.id DESC
 LIMIT ? OFFSET ?) AS anon_3 UNION ALL SELECT anon_4.id AS id
FROM (SELECT found.id AS id
FROM delivery AS found
WHERE found.identifier_3 = ? AND found.id < ? ORDER BY found.id DESC
 LIMIT ? OFFSET ?) AS anon_4 UNION ALL SELECT anon_5.id AS id
FROM (SELECT found.id AS id
FROM delivery AS found
WHERE found.source IN (WITH RECURSIVE sources (source) AS (
        SELECT (SELECT source FROM delivery WHERE TRUE ORDER BY source LIMIT 1)
        UNION ALL SELECT (
            SELECT source FROM delivery WHERE TRUE AND delivery.source > sources.source
            ORDER BY source LIMIT 1
        ) FROM sources WHERE sources.source IS NOT NULL
    ) SELECT source FROM sources WHERE source IS NOT NULL) AND found."key" = ? AND found.id < ? ORDER BY found.id DESC
 LIMIT ? OFFSET ?) AS anon_5 UNION ALL SELECT anon_6.id AS id
FROM (SELECT found.id AS id
FROM delivery AS found
WHERE found.id = ? AND found.id < ? ORDER BY found.id DESC
 LIMIT ? OFFSET ?) AS anon_6) AS anon_1
WHERE anon_1.id < ? ORDER BY anon_1.id DESC
 LIMIT ? OFFSET ?
--> SEARCH found USING COVERING INDEX delivery_identifier_1_idx (identifier_1=? AND id<?)
--> SCAN anon_2
--> SEARCH found USING COVERING INDEX delivery_identifier_2_idx (identifier_2=? AND id<?)
--> SCAN anon_3
--> SEARCH found USING COVERING INDEX delivery_identifier_3_idx (identifier_3=? AND id<?)
--> SCAN anon_4
--> SEARCH found USING COVERING INDEX sqlite_autoindex_delivery_1 (source=? AND key=?)
--> SCAN CONSTANT ROW
--> SCAN delivery USING COVERING INDEX sqlite_autoindex_delivery_1
--> SCAN sources
--> SEARCH delivery USING COVERING INDEX sqlite_autoindex_delivery_1 (source>?)
--> SCAN sources
--> SCAN anon_5
--> SEARCH found USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN anon_6

-- running/filters.py DeliveryFilter.ids
SELECT anon_1.id
FROM (SELECT anon_2.id AS id
FROM (SELECT found.id AS id
FROM delivery AS found
WHERE found.identifier_1 = ? AND found.id < ? ORDER BY found.id DESC
 LIMIT ? OFFSET ?) AS anon_2 UNION ALL SELECT anon_3.id AS id
FROM (SELECT found.id AS id
FROM delivery AS found
WHERE found.identifier_2 = ? AND found.id < ? ORDER BY found.id DESC
 LIMIT ? OFFSET ?) AS anon_3 UNION ALL SELECT anon_4.id AS id
FROM (SELECT found.id AS id
FROM delivery AS found
WHERE found.identifier_3 = ? AND found.id < ? ORDER BY found.id DESC
 LIMIT ? OFFSET ?) AS anon_4 UNION ALL SELECT anon_5.id AS id
FROM (SELECT found.id AS id
FROM delivery AS found
WHERE found.source IN (WITH RECURSIVE sources (source) AS (
        SELECT (SELECT source FROM delivery WHERE TRUE ORDER BY source LIMIT 1)
        UNION ALL SELECT (
            SELECT source FROM delivery WHERE TRUE AND delivery.source > sources.source
            ORDER BY source LIMIT 1
        ) FROM sources WHERE sources.source IS NOT NULL
    ) SELECT source FROM sources WHERE source IS NOT NULL) AND found."key" = ? AND found.id < ? ORDER BY found.id DESC
 LIMIT ? OFFSET ?) AS anon_5) AS anon_1
WHERE anon_1.id < ? ORDER BY anon_1.id DESC
 LIMIT ? OFFSET ?
--> SEARCH found USING COVERING INDEX delivery_identifier_1_idx (identifier_1=? AND id<?)
--> SCAN anon_2
--> SEARCH found USING COVERING INDEX delivery_identifier_2_idx (identifier_2=? AND id<?)
--> SCAN anon_3
--> SEARCH found USING COVERING INDEX delivery_identifier_3_idx (identifier_3=? AND id<?)
--> SCAN anon_4
--> SEARCH found USING COVERING INDEX sqlite_autoindex_delivery_1 (source=? AND key=?)
--> SCAN CONSTANT ROW
--> SCAN delivery USING COVERING INDEX sqlite_autoindex_delivery_1
--> SCAN sources
--> SEARCH delivery USING COVERING INDEX sqlite_autoindex_delivery_1 (source>?)
--> SCAN sources
--> SCAN anon_5

-- running/filters.py DeliveryFilter.ids
SELECT anon_1.id
FROM (SELECT anon_2.id AS id
FROM (SELECT found.id AS id
FROM delivery AS found
WHERE found.identifier_1 = ? ORDER BY found.id DESC
 LIMIT ? OFFSET ?) AS anon_2 UNION ALL SELECT anon_3.id AS id
FROM (SELECT found.id AS id
FROM delivery AS found
WHERE found.identifier_2 = ? ORDER BY found.id DESC
 LIMIT ? OFFSET ?) AS anon_3 UNION ALL SELECT anon_4.id AS id
FROM (SELECT found.id AS id
FROM delivery AS found
WHERE found.identifier_3 = ? ORDER BY found.id DESC
 LIMIT ? OFFSET ?) AS anon_4 UNION ALL SELECT anon_5.id AS id
FROM (SELECT found.id AS id
FROM delivery AS found
WHERE found.source IN (WITH RECURSIVE sources (source) AS (
        SELECT (SELECT source FROM delivery WHERE TRUE ORDER BY source LIMIT 1)
        UNION ALL SELECT (
            SELECT source FROM delivery WHERE TRUE AND delivery.source > sources.source
            ORDER BY source LIMIT 1
        ) FROM sources WHERE sources.source IS NOT NULL
    ) SELECT source FROM sources WHERE source IS NOT NULL) AND found."key" = ? ORDER BY found.id DESC
 LIMIT ? OFFSET ?) AS anon_5 UNION ALL SELECT anon_6.id AS id
FROM (SELECT found.id AS id
FROM delivery AS found
WHERE found.id = ? ORDER BY found.id DESC
 LIMIT ? OFFSET ?) AS anon_6) AS anon_1 ORDER BY anon_1.id DESC
 LIMIT ? OFFSET ?
--> SEARCH found USING COVERING INDEX delivery_identifier_1_idx (identifier_1=?)
--> SCAN anon_2
--> SEARCH found USING COVERING INDEX delivery_identifier_2_idx (identifier_2=?)
--> SCAN anon_3
--> SEARCH found USING COVERING INDEX delivery_identifier_3_idx (identifier_3=?)
--> SCAN anon_4
--> SEARCH found USING COVERING INDEX sqlite_autoindex_delivery_1 (source=? AND key=?)
--> SCAN CONSTANT ROW
--> SCAN delivery USING COVERING INDEX sqlite_autoindex_delivery_1
--> SCAN sources
--> SEARCH delivery USING COVERING INDEX sqlite_autoindex_delivery_1 (source>?)
--> SCAN sources
--> SCAN anon_5
--> SEARCH found USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN anon_6

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE (EXISTS (SELECT *
FROM run
WHERE run.delivery_id = delivery.id AND run.handler IN (SELECT ? AS anon_1 UNION SELECT coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?) AS coalesce_1 UNION SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.renamed_to = coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?)))) AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid<?)
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=? AND handler=?)
--> SCAN CONSTANT ROW
--> SCAN CONSTANT ROW
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE (EXISTS (SELECT *
FROM run
WHERE run.delivery_id = delivery.id AND run.twin_of IS NOT NULL)) AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid<?)
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE (delivery.conflict_of IS NULL OR (EXISTS (SELECT *
FROM run
WHERE run.delivery_id = delivery.id))) AND (delivery.event_type != ? OR delivery.type_field IS NOT NULL) AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid<?)
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.conflict_of IS NOT NULL AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INDEX delivery_conflict_idx (id<?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.event_type = ? AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING COVERING INDEX delivery_event_type_id_idx (event_type=? AND id<?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.event_type IN (?, ?) AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING COVERING INDEX delivery_event_type_id_idx (event_type=? AND id<?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid<?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.id > ? AND delivery.id < ? ORDER BY delivery.id
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.id >= ? AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.id IN (SELECT run.delivery_id
FROM run
WHERE (lower(run.last_error) LIKE '%' || lower(?) || '%' ESCAPE '/') UNION ALL SELECT other.id
FROM delivery AS other
WHERE (lower(other.error) LIKE '%' || lower(?) || '%' ESCAPE '/')) AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN run
--> SCAN other

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.id IN (SELECT run.delivery_id
FROM run
WHERE (lower(run.last_error) LIKE '%' || lower(?) || '%' ESCAPE '/') UNION ALL SELECT other.id
FROM delivery AS other
WHERE (lower(other.error) LIKE '%' || lower(?) || '%' ESCAPE '/')) AND delivery.id IN (SELECT found.id
FROM delivery AS found
WHERE found.identifier_1 = ? UNION ALL SELECT found.id
FROM delivery AS found
WHERE found.identifier_2 = ? UNION ALL SELECT found.id
FROM delivery AS found
WHERE found.identifier_3 = ? UNION ALL SELECT found.id
FROM delivery AS found
WHERE found.source IN (WITH RECURSIVE sources (source) AS (
        SELECT (SELECT source FROM delivery WHERE TRUE ORDER BY source LIMIT 1)
        UNION ALL SELECT (
            SELECT source FROM delivery WHERE TRUE AND delivery.source > sources.source
            ORDER BY source LIMIT 1
        ) FROM sources WHERE sources.source IS NOT NULL
    ) SELECT source FROM sources WHERE source IS NOT NULL) AND found."key" = ? UNION ALL SELECT found.id
FROM delivery AS found
WHERE found.id = ?) ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN run
--> SCAN other
--> SEARCH found USING COVERING INDEX delivery_identifier_1_idx (identifier_1=?)
--> SEARCH found USING COVERING INDEX delivery_identifier_2_idx (identifier_2=?)
--> SEARCH found USING COVERING INDEX delivery_identifier_3_idx (identifier_3=?)
--> SEARCH found USING COVERING INDEX sqlite_autoindex_delivery_1 (source=? AND key=?)
--> SCAN CONSTANT ROW
--> SCAN delivery USING COVERING INDEX sqlite_autoindex_delivery_1
--> SCAN sources
--> SEARCH delivery USING COVERING INDEX sqlite_autoindex_delivery_1 (source>?)
--> SCAN sources
--> SEARCH found USING INTEGER PRIMARY KEY (rowid=?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.id IN (SELECT run.delivery_id
FROM run
WHERE run.finished_at IS NOT NULL AND run.finished_at < ? UNION ALL SELECT run.delivery_id
FROM run JOIN failure ON failure.run_id = run.id
WHERE failure.failed_at < ?) AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING INDEX run_finished_at_idx (finished_at>? AND finished_at<?)
--> SEARCH failure USING INDEX failure_failed_at_idx (failed_at<?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.id IN (SELECT run.delivery_id
FROM run
WHERE run.finished_at IS NOT NULL AND run.finished_at >= ? AND run.state IN ('dead') UNION ALL SELECT run.delivery_id
FROM run JOIN failure ON failure.run_id = run.id
WHERE failure.failed_at >= ? AND (run.state = ? OR run.state IN ('due', 'running') AND run.state = ? AND run.attempts > ?)) AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING INDEX run_finished_at_idx (finished_at>?)
--> SEARCH failure USING INDEX failure_failed_at_idx (failed_at>?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.id IN (SELECT run.delivery_id
FROM run
WHERE run.finished_at IS NOT NULL AND run.finished_at >= ? UNION ALL SELECT run.delivery_id
FROM run JOIN failure ON failure.run_id = run.id
WHERE failure.failed_at >= ?) AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING INDEX run_finished_at_idx (finished_at>?)
--> SEARCH failure USING INDEX failure_failed_at_idx (failed_at>?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.id IN (SELECT run.delivery_id
FROM run
WHERE run.finished_at IS NOT NULL AND run.release_id = (SELECT billhook_release.id
FROM billhook_release
WHERE billhook_release.name = ?) AND run.finished_at >= (SELECT billhook_release.first_at
FROM billhook_release
WHERE billhook_release.name = ?) UNION ALL SELECT run.delivery_id
FROM run JOIN failure ON failure.run_id = run.id
WHERE failure.release_id = (SELECT billhook_release.id
FROM billhook_release
WHERE billhook_release.name = ?) AND failure.failed_at >= (SELECT billhook_release.first_at
FROM billhook_release
WHERE billhook_release.name = ?)) AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING INDEX run_finished_at_idx (finished_at>?)
--> SEARCH billhook_release USING INDEX sqlite_autoindex_billhook_release_1 (name=?)
--> SEARCH billhook_release USING COVERING INDEX sqlite_autoindex_billhook_release_1 (name=?)
--> SEARCH failure USING INDEX failure_failed_at_idx (failed_at>?)
--> SEARCH billhook_release USING INDEX sqlite_autoindex_billhook_release_1 (name=?)
--> SEARCH billhook_release USING COVERING INDEX sqlite_autoindex_billhook_release_1 (name=?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.id IN (SELECT run.delivery_id
FROM run JOIN failure ON failure.run_id = run.id
WHERE failure.fingerprint = ? UNION ALL SELECT run.delivery_id
FROM run
WHERE run.state IN ('dead') AND run.handler IN (SELECT (SELECT billhook_issue.subject
FROM billhook_issue
WHERE billhook_issue.fingerprint = ? AND billhook_issue.kind = ?) AS anon_1 UNION SELECT coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = (SELECT billhook_issue.subject
FROM billhook_issue
WHERE billhook_issue.fingerprint = ? AND billhook_issue.kind = ?)), (SELECT billhook_issue.subject
FROM billhook_issue
WHERE billhook_issue.fingerprint = ? AND billhook_issue.kind = ?)) AS coalesce_1 UNION SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.renamed_to = coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = (SELECT billhook_issue.subject
FROM billhook_issue
WHERE billhook_issue.fingerprint = ? AND billhook_issue.kind = ?)), (SELECT billhook_issue.subject
FROM billhook_issue
WHERE billhook_issue.fingerprint = ? AND billhook_issue.kind = ?)))) OR delivery.id IN (SELECT value FROM json_each(?)) ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH failure USING COVERING INDEX failure_fingerprint_idx (fingerprint=?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING INDEX run_dead_idx (handler=?)
--> SCAN CONSTANT ROW
--> SEARCH billhook_issue USING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)
--> SCAN CONSTANT ROW
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SEARCH billhook_issue USING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)
--> SEARCH billhook_issue USING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)
--> SCAN billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SEARCH billhook_issue USING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)
--> SEARCH billhook_issue USING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state IN ('dead', 'quarantined') AND delivery.state = ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING COVERING INDEX delivery_failed_idx (state=? AND id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.received_at < ? AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid<?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.received_at >= ? AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid<?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.source = ? AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING COVERING INDEX sqlite_autoindex_delivery_1 (source=?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.source IN (?, ?) AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING COVERING INDEX sqlite_autoindex_delivery_1 (source=?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.source IN (WITH RECURSIVE sources (source) AS (
        SELECT (SELECT source FROM delivery WHERE TRUE ORDER BY source LIMIT 1)
        UNION ALL SELECT (
            SELECT source FROM delivery WHERE TRUE AND delivery.source > sources.source
            ORDER BY source LIMIT 1
        ) FROM sources WHERE sources.source IS NOT NULL
    ) SELECT source FROM sources WHERE source IS NOT NULL) AND delivery."key" = ? AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING COVERING INDEX sqlite_autoindex_delivery_1 (source=? AND key=?)
--> SCAN CONSTANT ROW
--> SCAN delivery USING COVERING INDEX sqlite_autoindex_delivery_1
--> SCAN sources
--> SEARCH delivery USING COVERING INDEX sqlite_autoindex_delivery_1 (source>?)
--> SCAN sources

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.state = ? AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid<?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.state IN ('dead', 'quarantined') AND delivery.state = ? AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING COVERING INDEX delivery_failed_idx (state=? AND id<?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.state IN ('dead', 'quarantined') AND delivery.state = ? AND delivery.id > ? AND delivery.id < ? ORDER BY delivery.id
 LIMIT ? OFFSET ?
--> SEARCH delivery USING COVERING INDEX delivery_failed_idx (state=? AND id>? AND id<?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.state IN ('planned', 'done', 'dead') AND NOT (EXISTS (SELECT *
FROM run
WHERE run.delivery_id = delivery.id AND run.handler IN (SELECT ? AS anon_1 UNION SELECT coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?) AS coalesce_1 UNION SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.renamed_to = coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?) UNION SELECT ? AS anon_2 UNION SELECT coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?) AS coalesce_2 UNION SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.renamed_to = coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?)))) AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid<?)
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=? AND handler=?)
--> SCAN CONSTANT ROW
--> SCAN CONSTANT ROW
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN CONSTANT ROW
--> SCAN CONSTANT ROW
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.state IN ('planned', 'done', 'dead') AND NOT (EXISTS (SELECT *
FROM run
WHERE run.delivery_id = delivery.id AND run.handler IN (SELECT ? AS anon_1 UNION SELECT coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?) AS coalesce_1 UNION SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.renamed_to = coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?)))) AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid<?)
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=? AND handler=?)
--> SCAN CONSTANT ROW
--> SCAN CONSTANT ROW
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.state IN ('received') AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING COVERING INDEX delivery_received_idx (id<?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.state IN ('received', 'planned') AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INDEX delivery_unfinished_idx (id<?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.state IN ('received', 'planned') AND delivery.state = ? AND (EXISTS (SELECT *
FROM run
WHERE run.delivery_id = delivery.id AND run.state IN ('waiting', 'due') AND run.handler IN (SELECT coalesce(billhook_handler.renamed_to, billhook_handler.name) AS coalesce_1
FROM billhook_handler
WHERE billhook_handler.paused_at IS NOT NULL UNION ALL SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.paused_at IS NOT NULL OR billhook_handler.renamed_to IN (SELECT coalesce(billhook_handler.renamed_to, billhook_handler.name) AS coalesce_1
FROM billhook_handler
WHERE billhook_handler.paused_at IS NOT NULL)))) AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INDEX delivery_unfinished_idx (id<?)
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=? AND handler=?)
--> SCAN billhook_handler
--> SCAN billhook_handler
--> SCAN billhook_handler

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.state IN ('received', 'planned') AND delivery.state = ? AND NOT (EXISTS (SELECT *
FROM run
WHERE run.delivery_id = delivery.id AND run.state IN ('waiting', 'due') AND run.handler IN (SELECT coalesce(billhook_handler.renamed_to, billhook_handler.name) AS coalesce_1
FROM billhook_handler
WHERE billhook_handler.paused_at IS NOT NULL UNION ALL SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.paused_at IS NOT NULL OR billhook_handler.renamed_to IN (SELECT coalesce(billhook_handler.renamed_to, billhook_handler.name) AS coalesce_1
FROM billhook_handler
WHERE billhook_handler.paused_at IS NOT NULL)))) AND NOT (EXISTS (SELECT *
FROM run
WHERE run.delivery_id = delivery.id AND (run.state IN ('due', 'running') AND run.state = ? AND run.attempts > ? OR run.state IN ('due', 'running') AND run.state = ?))) AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INDEX delivery_unfinished_idx (id<?)
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=? AND handler=?)
--> SCAN billhook_handler
--> SCAN billhook_handler
--> SCAN billhook_handler
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.state IN ('received', 'planned') AND delivery.state = ? AND NOT (EXISTS (SELECT *
FROM run
WHERE run.delivery_id = delivery.id AND run.state IN ('waiting', 'due') AND run.handler IN (SELECT coalesce(billhook_handler.renamed_to, billhook_handler.name) AS coalesce_1
FROM billhook_handler
WHERE billhook_handler.paused_at IS NOT NULL UNION ALL SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.paused_at IS NOT NULL OR billhook_handler.renamed_to IN (SELECT coalesce(billhook_handler.renamed_to, billhook_handler.name) AS coalesce_1
FROM billhook_handler
WHERE billhook_handler.paused_at IS NOT NULL)))) AND delivery.id IN (SELECT run.delivery_id
FROM run
WHERE run.state IN ('due', 'running') AND run.state = ? AND run.attempts > ?) AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING INDEX run_claim_idx (state=?)
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=? AND handler=?)
--> SCAN billhook_handler
--> SCAN billhook_handler
--> SCAN billhook_handler

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.state IN ('received', 'planned') AND delivery.state = ? AND NOT (EXISTS (SELECT *
FROM run
WHERE run.delivery_id = delivery.id AND run.state IN ('waiting', 'due') AND run.handler IN (SELECT coalesce(billhook_handler.renamed_to, billhook_handler.name) AS coalesce_1
FROM billhook_handler
WHERE billhook_handler.paused_at IS NOT NULL UNION ALL SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.paused_at IS NOT NULL OR billhook_handler.renamed_to IN (SELECT coalesce(billhook_handler.renamed_to, billhook_handler.name) AS coalesce_1
FROM billhook_handler
WHERE billhook_handler.paused_at IS NOT NULL)))) AND delivery.id IN (SELECT run.delivery_id
FROM run
WHERE run.state IN ('due', 'running') AND run.state = ?) AND NOT (EXISTS (SELECT *
FROM run
WHERE run.delivery_id = delivery.id AND run.state IN ('due', 'running') AND run.state = ? AND run.attempts > ?)) AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH run USING INDEX run_claim_idx (state=?)
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=? AND handler=?)
--> SCAN billhook_handler
--> SCAN billhook_handler
--> SCAN billhook_handler
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE delivery.state IN ('received', 'planned') AND delivery.state = ? AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INDEX delivery_unfinished_idx (id<?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery
WHERE instr(delivery.body, ?) > ? AND delivery.id < ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid<?)

-- running/filters.py DeliveryFilter.ids
SELECT delivery.id
FROM delivery ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SCAN delivery

-- running/former_names.py _write
INSERT INTO billhook_handler (name, renamed_to) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET renamed_to = ?

-- running/former_names.py _write
UPDATE billhook_handler SET renamed_to=? WHERE billhook_handler.name IN (SELECT value FROM json_each(?))
--> SEARCH billhook_handler USING COVERING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/former_names.py record_former_names
SELECT (SELECT max(billhook_worker.list_id) AS max_1
FROM billhook_worker
WHERE billhook_worker.stopped_at IS NULL AND billhook_worker.list_id IS NOT NULL AND billhook_worker.held_at IS NULL AND billhook_worker.seen_at > ?) AS anon_1
--> SCAN CONSTANT ROW
--> SEARCH billhook_worker USING INDEX billhook_worker_seen_at_idx (seen_at>?)

-- running/handler_lists.py _forget_old
DELETE FROM billhook_handler_list WHERE billhook_handler_list.id <= ? AND NOT (EXISTS (SELECT *
FROM billhook_worker
WHERE billhook_worker.list_id = billhook_handler_list.id))
--> SEARCH billhook_handler_list USING INTEGER PRIMARY KEY (rowid<?)
--> SCAN billhook_worker

-- running/handler_lists.py count_left_out
SELECT count(*) AS count_1
FROM delivery
WHERE delivery.state IN ('received') AND coalesce(delivery.event_type, ?) IN (SELECT value FROM json_each(?))
--> SCAN delivery USING COVERING INDEX delivery_turn_idx
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/handler_lists.py count_left_out
SELECT count(*) AS count_1
FROM delivery
WHERE delivery.state IN ('received') AND coalesce(delivery.event_type, ?) IN (SELECT value FROM json_each(?)) = 0
--> SCAN delivery USING COVERING INDEX delivery_turn_idx
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/handler_lists.py list_number
INSERT INTO billhook_handler_list (digest, content, live_since) VALUES (?, ?, ?) ON CONFLICT (digest) DO NOTHING

-- running/handler_lists.py list_number
SELECT billhook_handler_list.id
FROM billhook_handler_list
WHERE billhook_handler_list.digest = ?
--> SEARCH billhook_handler_list USING COVERING INDEX sqlite_autoindex_billhook_handler_list_1 (digest=?)

-- running/handler_lists.py list_number
UPDATE billhook_handler_list SET live_since=? WHERE billhook_handler_list.id = ? AND NOT (EXISTS (SELECT *
FROM billhook_worker
WHERE billhook_worker.list_id = ? AND billhook_worker.stopped_at IS NULL AND billhook_worker.list_id IS NOT NULL AND billhook_worker.seen_at > ?))
--> SEARCH billhook_handler_list USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH billhook_worker USING INDEX billhook_worker_seen_at_idx (seen_at>?)

-- running/handler_lists.py note_planned
UPDATE billhook_handler_list SET planned_at=? WHERE billhook_handler_list.id IN (SELECT billhook_handler_list.id
FROM billhook_handler_list
WHERE billhook_handler_list.id = ? AND (billhook_handler_list.planned_at IS NULL OR billhook_handler_list.planned_at < ? OR billhook_handler_list.planned_at > ?))
--> SEARCH billhook_handler_list USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH billhook_handler_list USING INTEGER PRIMARY KEY (rowid=?)

-- running/handler_lists.py read_live_lists
SELECT billhook_handler_list.id, billhook_handler_list.content, billhook_handler_list.planned_at, billhook_handler_list.live_since, billhook_handler_list.id IN (SELECT billhook_worker.list_id
FROM billhook_worker
WHERE billhook_worker.stopped_at IS NULL AND billhook_worker.list_id IS NOT NULL AND billhook_worker.held_at IS NULL AND billhook_worker.seen_at > ?) AS may_plan
FROM billhook_handler_list
WHERE billhook_handler_list.id IN (SELECT billhook_worker.list_id
FROM billhook_worker
WHERE billhook_worker.stopped_at IS NULL AND billhook_worker.list_id IS NOT NULL AND billhook_worker.seen_at > ?) ORDER BY billhook_handler_list.id DESC
--> SEARCH billhook_handler_list USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH billhook_worker USING INDEX billhook_worker_seen_at_idx (seen_at>?)
--> SEARCH billhook_worker USING INDEX billhook_worker_seen_at_idx (seen_at>?)

-- running/handler_lists.py record_lacking
SELECT billhook_handler_list.missed_names
FROM billhook_handler_list
WHERE billhook_handler_list.id = ?
--> SEARCH billhook_handler_list USING INTEGER PRIMARY KEY (rowid=?)

-- running/handler_lists.py record_lacking
UPDATE billhook_handler_list SET missed=(billhook_handler_list.missed + ?), missed_at=?, missed_names=? WHERE billhook_handler_list.id = ?
--> SEARCH billhook_handler_list USING INTEGER PRIMARY KEY (rowid=?)

-- running/handler_lists.py waits_since
SELECT delivery.received_at
FROM delivery
WHERE delivery.state IN ('received') AND coalesce(delivery.event_type, ?) IN (SELECT value FROM json_each(?)) = 0 ORDER BY delivery.id
 LIMIT ? OFFSET ?
--> SCAN delivery USING INDEX delivery_received_idx
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/handler_lists.py waits_since
SELECT delivery.received_at
FROM delivery
WHERE delivery.state IN ('received') AND coalesce(delivery.event_type, ?) IN (SELECT value FROM json_each(?)) ORDER BY delivery.id
 LIMIT ? OFFSET ?
--> SCAN delivery USING INDEX delivery_received_idx
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/leases.py _make_due
UPDATE run SET state=?, attempts=(run.attempts - ?), due_at=? WHERE run.id IN (SELECT value FROM json_each(?))
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/leases.py _make_due
UPDATE run SET state=?, due_at=?, last_error=?, runs_alone=?, uncounted_attempts=? WHERE run.id IN (SELECT value FROM json_each(?))
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/leases.py expire_leases
INSERT INTO failure (run_id, attempt, failed_at, error, fingerprint, worker, release_id) VALUES (?, ?, ?, ?, ?, ?, ?)

-- running/leases.py expire_leases
SELECT run.id, run.handler, run.attempts, run.worker, run.release_id, run.queued, run.runs_alone, run.beside_others, run.uncounted_attempts, run.postponements
FROM run
WHERE run.state IN ('due', 'running') AND run.state = ? AND run.due_at <= ? AND CAST(run.id AS TEXT) || ? || CAST(run.token AS TEXT) IN (SELECT value FROM json_each(?)) = 0 ORDER BY run.due_at, run.id
 LIMIT ? OFFSET ?
--> SEARCH run USING INDEX run_claim_idx (state=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/leases.py expire_leases
SELECT run.id, run.handler, run.attempts, run.worker, run.release_id, run.queued, run.runs_alone, run.beside_others, run.uncounted_attempts, run.postponements
FROM run
WHERE run.state IN ('due', 'running') AND run.state = ? AND run.due_at <= ? AND run.delivery_id = ? ORDER BY run.due_at, run.id
 LIMIT ? OFFSET ?
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)

-- running/limits.py Limiter._paused_as_others
SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.paused_at IS NOT NULL AND billhook_handler.name IN (SELECT value FROM json_each(?))
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/limits.py Limiter._read
SELECT billhook_handler.id, billhook_handler.name, billhook_handler.paused_at, billhook_handler.paused_why, billhook_handler.paused_error, billhook_handler.failures, billhook_handler.next_start_at, billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name IN (SELECT value FROM json_each(?))
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/limits.py Limiter._read
-- running/limits.py pause
-- running/limits.py pause_renamed
INSERT INTO billhook_handler (name) VALUES (?)

-- running/limits.py Limiter._write
UPDATE billhook_handler SET failures=? WHERE billhook_handler.id = ?
--> SEARCH billhook_handler USING INTEGER PRIMARY KEY (rowid=?)

-- running/limits.py Limiter._write
UPDATE billhook_handler SET next_start_at=? WHERE billhook_handler.id = ?
--> SEARCH billhook_handler USING INTEGER PRIMARY KEY (rowid=?)

-- running/limits.py _pause
UPDATE billhook_handler SET paused_at=?, paused_why=?, paused_error=? WHERE billhook_handler.name = ? OR billhook_handler.renamed_to = ?
--> SCAN billhook_handler

-- running/limits.py find_paused
SELECT coalesce(billhook_handler.renamed_to, billhook_handler.name) AS name, billhook_handler.paused_at, billhook_handler.paused_why, billhook_handler.paused_error
FROM billhook_handler
WHERE billhook_handler.paused_at IS NOT NULL
--> SCAN billhook_handler

-- running/limits.py forget_errors
SELECT billhook_handler.id
FROM billhook_handler
WHERE billhook_handler.paused_error IN (SELECT value FROM json_each(?))
--> SCAN billhook_handler
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/limits.py forget_errors
UPDATE billhook_handler SET paused_error=? WHERE billhook_handler.paused_error IN (SELECT value FROM json_each(?))
--> SCAN billhook_handler
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/limits.py pause
SELECT billhook_handler.id, billhook_handler.name, billhook_handler.paused_at, billhook_handler.paused_why, billhook_handler.paused_error, billhook_handler.failures, billhook_handler.next_start_at, billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name IN (SELECT ? AS anon_1 UNION SELECT coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?) AS coalesce_1 UNION SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.renamed_to = coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?))
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN CONSTANT ROW
--> SCAN CONSTANT ROW
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)

-- running/limits.py pause_renamed
SELECT coalesce(billhook_handler.renamed_to, billhook_handler.name) AS own, billhook_handler.id, billhook_handler.name, billhook_handler.paused_at, billhook_handler.paused_why, billhook_handler.paused_error, billhook_handler.failures, billhook_handler.next_start_at, billhook_handler.renamed_to
FROM billhook_handler
WHERE coalesce(billhook_handler.renamed_to, billhook_handler.name) IN (SELECT value FROM json_each(?))
--> SCAN billhook_handler
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/limits.py resume
UPDATE billhook_handler SET paused_at=?, paused_why=?, paused_error=?, failures=? WHERE billhook_handler.name IN (SELECT ? AS anon_1 UNION SELECT coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?) AS coalesce_1 UNION SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.renamed_to = coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?)) AND billhook_handler.paused_at IS NOT NULL
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN CONSTANT ROW
--> SCAN CONSTANT ROW
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)

-- running/lost_workers.py _ran
SELECT anon_1.worker, run.handler
FROM (SELECT failure.id AS id, failure.run_id AS run_id, failure.attempt AS attempt, failure.failed_at AS failed_at, failure.error AS error, failure.traceback AS traceback, failure.duration_seconds AS duration_seconds, failure.retried AS retried, failure.fingerprint AS fingerprint, failure.place AS place, failure.worker AS worker, failure.release_id AS release_id
FROM failure ORDER BY failure.id DESC
 LIMIT ? OFFSET ?) AS anon_1 JOIN run ON anon_1.run_id = run.id
WHERE anon_1.error = ? AND anon_1.worker IN (SELECT value FROM json_each(?))
--> SCAN failure
--> SCAN anon_1
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)

-- running/lost_workers.py _ran
SELECT run.worker, run.handler
FROM run
WHERE run.state IN ('due', 'running') AND run.state = ? AND run.queued = ? AND run.worker IN (SELECT value FROM json_each(?))
--> SEARCH run USING INDEX run_claim_idx (state=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/lost_workers.py read_lost_beside
SELECT failure.worker, run.handler
FROM failure JOIN run ON run.id = failure.run_id
WHERE failure.error = ? ORDER BY failure.id DESC
 LIMIT ? OFFSET ?
--> SCAN failure
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)

-- running/lost_workers.py read_lost_workers
SELECT billhook_worker.owner, billhook_worker.host, billhook_worker.handlers, billhook_worker.started_at, billhook_worker.seen_at, billhook_worker.died_at
FROM billhook_worker
WHERE billhook_worker.stopped_at IS NULL AND billhook_worker.engine != ? AND billhook_worker.seen_at > ? AND (billhook_worker.died_at IS NOT NULL OR billhook_worker.seen_at < ?)
--> SEARCH billhook_worker USING INDEX billhook_worker_seen_at_idx (seen_at>?)

-- running/lost_workers.py read_lost_workers
SELECT max(billhook_worker.seen_at) AS max_1
FROM billhook_worker
--> SEARCH billhook_worker USING COVERING INDEX billhook_worker_seen_at_idx

-- running/ordering.py _release_next_of_several_names
SELECT keys.handler, keys.order_key, run.id, run.state, run.delivery_id
FROM (SELECT json_extract(anon_1.value, '$.handler') AS handler, json_extract(anon_1.value, '$.order_key') AS order_key
FROM json_each(?) AS anon_1) AS keys JOIN run ON run.id = (SELECT own.id
FROM run AS own
WHERE own.handler = keys.handler AND own.order_key = keys.order_key AND own.state IN ('waiting', 'due', 'running') ORDER BY own.state, own.delivery_id
 LIMIT 1 OFFSET ?)
--> SCAN anon_1 VIRTUAL TABLE INDEX 1:
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH own USING COVERING INDEX run_order_idx (handler=? AND order_key=? AND state=?)

-- running/ordering.py _release_next_of_several_names
UPDATE run SET state=?, due_at=CASE WHEN (run.not_before > ?) THEN run.not_before ELSE ? END WHERE run.id IN (SELECT value FROM json_each(?)) AND run.state IN ('waiting') RETURNING delivery_id
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/ordering.py release_next
UPDATE run SET state=?, due_at=CASE WHEN (run.not_before > ?) THEN run.not_before ELSE ? END WHERE run.id IN (SELECT (SELECT own.id
FROM run AS own
WHERE own.handler = keys.handler AND own.order_key = keys.order_key AND own.state IN ('waiting', 'due', 'running') ORDER BY own.state, own.delivery_id
 LIMIT 1 OFFSET ?) AS anon_1
FROM (SELECT json_extract(anon_2.value, '$.handler') AS handler, json_extract(anon_2.value, '$.order_key') AS order_key
FROM json_each(?) AS anon_2) AS keys) AND run.state IN ('waiting') RETURNING delivery_id
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN anon_2 VIRTUAL TABLE INDEX 1:
--> SEARCH own USING COVERING INDEX run_order_idx (handler=? AND order_key=? AND state=?)

-- running/ordering.py waiting_keys
SELECT DISTINCT run.handler, run.order_key
FROM run
WHERE run.order_key IS NOT NULL AND run.state IN ('waiting', 'due', 'running') AND run.state = ? AND run.handler IN (SELECT value FROM json_each(?))
--> SEARCH run USING COVERING INDEX run_order_idx (handler=? AND order_key>?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/planning.py change_runs
UPDATE run SET handler=?, state=?, attempts=?, due_at=?, not_before=?, worker=?, release_id=?, queued=?, token=(run.token + ?), last_error=?, finished_at=?, order_key=?, newest_only=?, newest_key=?, identity=?, twin_of=?, runs_alone=?, beside_others=?, uncounted_attempts=?, postponements=?, replays=(run.replays + CASE WHEN (run.state IN ('waiting', 'due', 'running')) THEN ? ELSE ? END), started_at=?, duration_seconds=? WHERE run.id = ?
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)

-- running/planning.py write_plans
UPDATE delivery SET event_type=coalesce(plans.event_type, delivery.event_type), state=plans.new_state, error=plans.reason, identifier_1=plans.identifier_1, identifier_2=plans.identifier_2, identifier_3=plans.identifier_3 FROM (SELECT json_extract(anon_1.value, '$.delivery_id') AS delivery_id, json_extract(anon_1.value, '$.new_state') AS new_state, json_extract(anon_1.value, '$.reason') AS reason, json_extract(anon_1.value, '$.event_type') AS event_type, json_extract(anon_1.value, '$.identifier_1') AS identifier_1, json_extract(anon_1.value, '$.identifier_2') AS identifier_2, json_extract(anon_1.value, '$.identifier_3') AS identifier_3
FROM json_each(?) AS anon_1) AS plans WHERE delivery.id = plans.delivery_id AND delivery.state IN ('received') RETURNING id, "key", (SELECT count(*) AS count_1
FROM billhook_handler
WHERE paused_at IS NOT NULL) AS anon_2
--> SCAN anon_1 VIRTUAL TABLE INDEX 1:
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN billhook_handler

-- running/planning.py write_plans
UPDATE delivery SET state=plans.new_state, error=plans.reason, identifier_1=plans.identifier_1, identifier_2=plans.identifier_2, identifier_3=plans.identifier_3 FROM (SELECT json_extract(anon_1.value, '$.delivery_id') AS delivery_id, json_extract(anon_1.value, '$.new_state') AS new_state, json_extract(anon_1.value, '$.reason') AS reason, json_extract(anon_1.value, '$.event_type') AS event_type, json_extract(anon_1.value, '$.identifier_1') AS identifier_1, json_extract(anon_1.value, '$.identifier_2') AS identifier_2, json_extract(anon_1.value, '$.identifier_3') AS identifier_3
FROM json_each(?) AS anon_1) AS plans WHERE delivery.id = plans.delivery_id AND delivery.state IN ('planned') RETURNING id, "key", (SELECT count(*) AS count_1
FROM billhook_handler
WHERE paused_at IS NOT NULL) AS anon_2
--> SCAN anon_1 VIRTUAL TABLE INDEX 1:
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN billhook_handler

-- running/planning.py write_plans
UPDATE delivery SET state=plans.new_state, error=plans.reason, identifier_1=plans.identifier_1, identifier_2=plans.identifier_2, identifier_3=plans.identifier_3 FROM (SELECT json_extract(anon_1.value, '$.delivery_id') AS delivery_id, json_extract(anon_1.value, '$.new_state') AS new_state, json_extract(anon_1.value, '$.reason') AS reason, json_extract(anon_1.value, '$.event_type') AS event_type, json_extract(anon_1.value, '$.identifier_1') AS identifier_1, json_extract(anon_1.value, '$.identifier_2') AS identifier_2, json_extract(anon_1.value, '$.identifier_3') AS identifier_3
FROM json_each(?) AS anon_1) AS plans WHERE delivery.id = plans.delivery_id AND delivery.state IN ('received') RETURNING id, "key", (SELECT count(*) AS count_1
FROM billhook_handler
WHERE paused_at IS NOT NULL) AS anon_2
--> SCAN anon_1 VIRTUAL TABLE INDEX 1:
--> SEARCH delivery USING COVERING INDEX delivery_received_idx (id=? AND rowid=?)
--> SCAN billhook_handler

-- running/postponing.py put_off_runs
UPDATE run SET due_at=CASE WHEN (run.due_at > ? AND (run.not_before IS NULL OR run.due_at > run.not_before)) THEN run.due_at ELSE ? END, not_before=? WHERE run.id IN (SELECT value FROM json_each(?)) AND run.state IN ('due', 'waiting')
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/readings.py end_readings
DELETE FROM run WHERE run.id IN (SELECT value FROM json_each(?)) AND CAST(run.id AS TEXT) || ? || CAST(run.token AS TEXT) IN (SELECT value FROM json_each(?)) AND (run.state IN ('running') OR run.state IN ('due') AND (run.runs_alone = 1 OR run.queued = 1)) RETURNING id, token, attempts, handler, order_key
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH failure USING COVERING INDEX failure_run_id_idx (run_id=?)

-- running/readings.py mark_alone
UPDATE run SET runs_alone=? WHERE run.id IN (SELECT value FROM json_each(?)) AND CAST(run.id AS TEXT) || ? || CAST(run.token AS TEXT) IN (SELECT value FROM json_each(?)) AND run.state = ?
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/runs.py _write_results
SELECT run.id, run.token, run.handler, run.order_key, run.newest_only
FROM run
WHERE run.id IN (SELECT value FROM json_each(?)) AND (run.state IN ('running') OR run.state IN ('due') AND (run.runs_alone = 1 OR run.queued = 1))
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/runs.py _write_results
UPDATE run SET state=?, attempts=?, due_at=CASE WHEN (run.not_before > coalesce(?, run.due_at)) THEN run.not_before ELSE coalesce(?, run.due_at) END, not_before=coalesce(CASE WHEN (run.not_before > ?) THEN run.not_before ELSE ? END, run.not_before), queued=0, last_error=?, finished_at=CASE WHEN (? < (SELECT billhook_watermark.finished_at
FROM billhook_watermark)) THEN (SELECT billhook_watermark.finished_at
FROM billhook_watermark) ELSE ? END, runs_alone=0, beside_others=0, uncounted_attempts=CASE WHEN (run.uncounted_attempts + ? > ?) THEN ? ELSE run.uncounted_attempts + ? END, postponements=(run.postponements + CASE WHEN (? IS NULL) THEN 0 ELSE 1 END), started_at=coalesce(?, run.started_at), duration_seconds=? WHERE run.id = ? AND run.token = ? AND (run.state IN ('running') OR run.state IN ('due') AND (run.runs_alone = 1 OR run.queued = 1))
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN billhook_watermark
--> SCAN billhook_watermark

-- running/runs.py finish_deliveries
UPDATE delivery SET state=CASE WHEN (EXISTS (SELECT *
FROM run
WHERE run.delivery_id = delivery.id AND run.state = ?)) THEN ? ELSE ? END WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state = ? AND NOT (EXISTS (SELECT *
FROM run
WHERE run.delivery_id = delivery.id AND run.state IN ('waiting', 'due', 'running')))
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)

-- running/runs.py insert_runs
INSERT INTO run (delivery_id, handler, state, attempts, due_at, worker, release_id, queued, token, last_error, finished_at, order_key, newest_only, newest_key, identity, twin_of, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- running/runs.py insert_runs
SELECT last_insert_rowid()
--> SCAN CONSTANT ROW

-- running/runs.py settle
INSERT INTO failure (run_id, attempt, failed_at, error, traceback, duration_seconds, retried, fingerprint, place, worker, release_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- running/superseding.py _discard
UPDATE run SET state=?, last_error=?, finished_at=CASE WHEN (? < (SELECT billhook_watermark.finished_at
FROM billhook_watermark)) THEN (SELECT billhook_watermark.finished_at
FROM billhook_watermark) ELSE ? END WHERE run.handler = ? AND run.order_key = ? AND run.state IN ('waiting', 'due', 'running') AND run.state IN ('waiting', 'due') AND run.delivery_id IN (SELECT value FROM json_each(?)) RETURNING delivery_id, handler
--> SEARCH run USING COVERING INDEX run_order_idx (handler=? AND order_key=? AND state=? AND delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN billhook_watermark
--> SCAN billhook_watermark

-- running/superseding.py _discard
UPDATE run SET state=?, last_error=?, finished_at=CASE WHEN (? < (SELECT billhook_watermark.finished_at
FROM billhook_watermark)) THEN (SELECT billhook_watermark.finished_at
FROM billhook_watermark) ELSE ? END WHERE run.handler IN (SELECT value FROM json_each(?)) AND run.order_key = ? AND run.state IN ('waiting', 'due', 'running') AND run.state IN ('waiting', 'due') AND run.delivery_id IN (SELECT value FROM json_each(?)) RETURNING delivery_id, handler
--> SEARCH run USING COVERING INDEX run_order_idx (handler=? AND order_key=? AND state=? AND delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN billhook_watermark
--> SCAN billhook_watermark

-- running/superseding.py _newer_by_key
SELECT anon_1.delivery_id, anon_1.newest_key
FROM (SELECT run_1.delivery_id AS delivery_id, run_1.newest_key AS newest_key
FROM run AS run_1
WHERE run_1.handler = ? AND run_1.order_key = ? AND run_1.newest_key IS NOT NULL AND run_1.state IN ('succeeded') ORDER BY run_1.newest_key DESC, run_1.delivery_id DESC
 LIMIT 1 OFFSET ?) AS anon_1 UNION ALL SELECT anon_2.delivery_id, anon_2.newest_key
FROM (SELECT run_2.delivery_id AS delivery_id, run_2.newest_key AS newest_key
FROM run AS run_2
WHERE run_2.handler = ? AND run_2.order_key = ? AND run_2.newest_key IS NOT NULL AND run_2.state IN ('succeeded') AND run_2.newest_key = ? ORDER BY run_2.delivery_id DESC
 LIMIT 1 OFFSET ?) AS anon_2
--> SEARCH run_1 USING COVERING INDEX run_newest_idx (handler=? AND order_key=? AND newest_key>?)
--> SCAN anon_1
--> SEARCH run_2 USING COVERING INDEX run_newest_idx (handler=? AND order_key=? AND newest_key=?)
--> SCAN anon_2

-- running/superseding.py _newer_by_key
SELECT anon_1.delivery_id, anon_1.newest_key
FROM (SELECT run_1.delivery_id AS delivery_id, run_1.newest_key AS newest_key
FROM run AS run_1
WHERE run_1.handler IN (SELECT value FROM json_each(?)) AND run_1.order_key = ? AND run_1.newest_key IS NOT NULL AND run_1.state IN ('succeeded') ORDER BY run_1.newest_key DESC, run_1.delivery_id DESC
 LIMIT 1 OFFSET ?) AS anon_1 UNION ALL SELECT anon_2.delivery_id, anon_2.newest_key
FROM (SELECT run_2.delivery_id AS delivery_id, run_2.newest_key AS newest_key
FROM run AS run_2
WHERE run_2.handler IN (SELECT value FROM json_each(?)) AND run_2.order_key = ? AND run_2.newest_key IS NOT NULL AND run_2.state IN ('succeeded') AND run_2.newest_key = ? ORDER BY run_2.delivery_id DESC
 LIMIT 1 OFFSET ?) AS anon_2 UNION ALL SELECT anon_3.delivery_id, anon_3.newest_key
FROM (SELECT run_3.delivery_id AS delivery_id, run_3.newest_key AS newest_key
FROM run AS run_3
WHERE run_3.handler IN (SELECT value FROM json_each(?)) AND run_3.order_key = ? AND run_3.newest_key IS NOT NULL AND run_3.state IN ('succeeded') ORDER BY run_3.delivery_id DESC
 LIMIT 1 OFFSET ?) AS anon_3
--> SEARCH run_1 USING COVERING INDEX run_newest_idx (handler=? AND order_key=? AND newest_key>?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN anon_1
--> SEARCH run_2 USING COVERING INDEX run_newest_idx (handler=? AND order_key=? AND newest_key=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN anon_2
--> SEARCH run_3 USING COVERING INDEX run_newest_idx (handler=? AND order_key=? AND newest_key>?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN anon_3

-- running/superseding.py _newer_by_key
SELECT delivery.id
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) ORDER BY delivery.id
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/superseding.py _newer_by_key
SELECT run.delivery_id, coalesce(run.newest_key, ?) AS coalesce_1, run.newest_only = ? AND run.uncounted_attempts = run.postponements AS anon_1
FROM run
WHERE run.handler = ? AND run.order_key = ? AND run.state IN ('waiting', 'due', 'running') AND run.state IN ('waiting', 'due')
--> SEARCH run USING INDEX run_order_idx (handler=? AND order_key=? AND state=?)

-- running/superseding.py _newer_by_key
SELECT run.delivery_id, coalesce(run.newest_key, ?) AS coalesce_1, run.newest_only = ? AND run.uncounted_attempts = run.postponements AS anon_1
FROM run
WHERE run.handler IN (SELECT value FROM json_each(?)) AND run.order_key = ? AND run.state IN ('waiting', 'due', 'running') AND run.state IN ('waiting', 'due')
--> SEARCH run USING INDEX run_order_idx (handler=? AND order_key=? AND state=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/superseding.py discard_superseded
SELECT run.delivery_id, (SELECT max(newest.delivery_id) AS max_1
FROM run AS newest
WHERE newest.handler = ? AND newest.order_key = ? AND newest.state IN ('waiting', 'due', 'running')) AS newest
FROM run JOIN delivery ON delivery.id = run.delivery_id
WHERE run.handler = ? AND run.order_key = ? AND run.state IN ('waiting', 'due', 'running') AND run.state IN ('waiting', 'due') AND run.newest_only = ? AND run.uncounted_attempts = run.postponements AND run.delivery_id < (SELECT max(newest.delivery_id) AS max_1
FROM run AS newest
WHERE newest.handler = ? AND newest.order_key = ? AND newest.state IN ('waiting', 'due', 'running'))
--> SEARCH run USING INDEX run_order_idx (handler=? AND order_key=? AND state=? AND delivery_id<?)
--> SEARCH newest USING COVERING INDEX run_order_idx (handler=? AND order_key=? AND state=?)
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH newest USING COVERING INDEX run_order_idx (handler=? AND order_key=? AND state=?)

-- running/transaction.py InboxTransaction._mark_running
UPDATE run SET state=?, attempts=(run.attempts + ?), due_at=?, not_before=?, worker=?, release_id=?, queued=?, token=(run.token + ?), beside_others=?, started_at=?, duration_seconds=? WHERE run.id IN (SELECT value FROM json_each(?))
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/transaction.py InboxTransaction.mark_not_alone
SELECT run.id
FROM run
WHERE run.id IN (SELECT value FROM json_each(?)) AND CAST(run.id AS TEXT) || ? || CAST(run.token AS TEXT) IN (SELECT value FROM json_each(?)) AND run.state = ? AND run.runs_alone = ? AND run.beside_others = ?
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/transaction.py InboxTransaction.mark_not_alone
UPDATE run SET beside_others=? WHERE run.id IN (SELECT value FROM json_each(?))
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/transaction.py InboxTransaction.release
UPDATE run SET state=?, attempts=(run.attempts - ?), due_at=?, queued=?, beside_others=? WHERE run.id IN (SELECT value FROM json_each(?)) AND CAST(run.id AS TEXT) || ? || CAST(run.token AS TEXT) IN (SELECT value FROM json_each(?)) AND run.state = ?
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/transaction.py InboxTransaction.release_orphaned
UPDATE run SET state=?, attempts=(run.attempts - ?), due_at=?, queued=?, beside_others=? WHERE run.state IN ('due', 'running') AND run.state = ? AND run.worker = ? AND CAST(run.id AS TEXT) || ? || CAST(run.token AS TEXT) IN (SELECT value FROM json_each(?)) = 0
--> SEARCH run USING INDEX run_claim_idx (state=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/transaction.py InboxTransaction.renew
UPDATE run SET due_at=? WHERE run.id IN (SELECT value FROM json_each(?)) AND CAST(run.id AS TEXT) || ? || CAST(run.token AS TEXT) IN (SELECT value FROM json_each(?)) AND run.state = ? RETURNING id, token
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/transaction.py count_skipped
SELECT count(*) AS count_1
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?)) AND delivery.state IN ('received')
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/transaction.py count_skipped
SELECT count(*) AS count_1
FROM run
WHERE run.id IN (SELECT value FROM json_each(?)) AND CAST(run.id AS TEXT) || ? || CAST(run.token AS TEXT) IN (SELECT value FROM json_each(?)) AND run.state = ?
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- running/unread.py RoundRobin.choose
WITH RECURSIVE found (id, event_type, source, number, of_type) AS (
    SELECT CAST(0 AS bigint), CAST(? AS text), CAST(? AS text), 0, ?
    UNION ALL
    SELECT here.id, here.event_type, here.source, found.number + 1,
        CASE WHEN here.event_type = found.event_type AND here.source = found.source
            THEN found.of_type + 1 ELSE 1 END
    FROM found JOIN delivery AS here ON here.id = coalesce((
    SELECT id FROM delivery WHERE state IN ('received') AND event_type = found.event_type AND source = found.source AND id > found.id AND found.of_type < ? ORDER BY event_type, source, id LIMIT 1
), (
    SELECT id FROM delivery WHERE state IN ('received') AND event_type = found.event_type AND source > found.source ORDER BY event_type, source, id LIMIT 1
), (
    SELECT id FROM delivery WHERE state IN ('received') AND event_type > found.event_type ORDER BY event_type, source, id LIMIT 1
))
    WHERE found.number < ?
) SELECT stored.id, stored.source, stored.key, stored.event_type, stored.body, stored.headers, stored.signed_at, stored.received_at, stored.variant, stored.sent_as, stored.type_field FROM found JOIN delivery AS stored ON stored.id = found.id ORDER BY found.number
--> SCAN CONSTANT ROW
--> SCAN found
--> SEARCH here USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH delivery USING COVERING INDEX delivery_turn_idx (event_type=? AND source=? AND id>?)
--> SEARCH delivery USING COVERING INDEX delivery_turn_idx (event_type=? AND source>?)
--> SEARCH delivery USING COVERING INDEX delivery_turn_idx (event_type>?)
--> SCAN found
--> SEARCH stored USING INTEGER PRIMARY KEY (rowid=?)

-- running/unread.py first_of_each
WITH RECURSIVE found (id, event_type, source, number, of_type) AS (
    SELECT CAST(0 AS bigint), CAST(? AS text), CAST(? AS text), 0, ?
    UNION ALL
    SELECT here.id, here.event_type, here.source, found.number + 1,
        CASE WHEN here.event_type = found.event_type AND here.source = found.source
            THEN found.of_type + 1 ELSE 1 END
    FROM found JOIN delivery AS here ON here.id = coalesce((
    SELECT id FROM delivery WHERE state IN ('received') AND event_type = found.event_type AND source = found.source AND id > found.id AND found.of_type < ? ORDER BY event_type, source, id LIMIT 1
), (
    SELECT id FROM delivery WHERE state IN ('received') AND event_type = found.event_type AND source > found.source ORDER BY event_type, source, id LIMIT 1
), (
    SELECT id FROM delivery WHERE state IN ('received') AND event_type > found.event_type ORDER BY event_type, source, id LIMIT 1
))
    WHERE found.number < ?
) SELECT stored.id, stored.received_at, stored.event_type FROM found JOIN delivery AS stored ON stored.id = found.id ORDER BY found.number
--> SCAN CONSTANT ROW
--> SCAN found
--> SEARCH here USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH delivery USING COVERING INDEX delivery_turn_idx (event_type=? AND source=? AND id>?)
--> SEARCH delivery USING COVERING INDEX delivery_turn_idx (event_type=? AND source>?)
--> SEARCH delivery USING COVERING INDEX delivery_turn_idx (event_type>?)
--> SCAN found
--> SEARCH stored USING INTEGER PRIMARY KEY (rowid=?)

-- running/workers.py expects_worker
SELECT billhook_worker.engine
FROM billhook_worker
WHERE billhook_worker.stopped_at IS NOT NULL AND billhook_worker.engine != ? ORDER BY billhook_worker.stopped_at DESC
 LIMIT ? OFFSET ?
--> SCAN billhook_worker

-- running/workers.py last_seen_before
SELECT max(coalesce(billhook_worker.died_at, billhook_worker.seen_at)) AS max_1
FROM billhook_worker
WHERE (billhook_worker.died_at <= ? OR coalesce(billhook_worker.died_at, billhook_worker.seen_at) <= ?) AND billhook_worker.stopped_at IS NULL AND billhook_worker.engine != ?
--> SEARCH billhook_worker

-- running/workers.py read_sharing
SELECT billhook_worker.owner
FROM billhook_worker
WHERE billhook_worker.engine = ? AND billhook_worker.list_id = ? AND billhook_worker.died_at IS NULL AND billhook_worker.seen_at > ?
--> SEARCH billhook_worker USING INDEX billhook_worker_seen_at_idx (seen_at>?)

-- running/workers.py record_stop
DELETE FROM billhook_worker WHERE billhook_worker.owner = ? AND billhook_worker.engine = ?
--> SEARCH billhook_worker USING INDEX sqlite_autoindex_billhook_worker_1 (owner=?)

-- running/workers.py record_stop
UPDATE billhook_worker SET list_id=?, stopped_at=? WHERE billhook_worker.owner = ?
--> SEARCH billhook_worker USING INDEX sqlite_autoindex_billhook_worker_1 (owner=?)

-- running/workers.py record_stopping
UPDATE billhook_worker SET list_id=? WHERE billhook_worker.owner = ?
--> SEARCH billhook_worker USING INDEX sqlite_autoindex_billhook_worker_1 (owner=?)

-- running/workers.py record_worker
DELETE FROM billhook_worker WHERE billhook_worker.owner IN (SELECT billhook_worker.owner
FROM billhook_worker
WHERE billhook_worker.seen_at < ?)
--> SEARCH billhook_worker USING COVERING INDEX sqlite_autoindex_billhook_worker_1 (owner=?)
--> SEARCH billhook_worker USING INDEX billhook_worker_seen_at_idx (seen_at<?)

-- running/workers.py record_worker
INSERT INTO billhook_worker (owner, engine, handlers, started_at, host, pid, pid_space, pid_ticks, threads, release_id, list_id, seen_at, stopped_at, died_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL) ON CONFLICT (owner) DO UPDATE SET handlers = ?, release_id = ?, list_id = ?, seen_at = ?, stopped_at = NULL, died_at = NULL

-- running/workers.py release_number
INSERT INTO billhook_release (name, first_at) VALUES (?, ?) ON CONFLICT (name) DO NOTHING

-- running/workers.py release_number
SELECT billhook_release.id
FROM billhook_release
WHERE billhook_release.name = ?
--> SEARCH billhook_release USING COVERING INDEX sqlite_autoindex_billhook_release_1 (name=?)

-- running/workers.py worker_rows
SELECT billhook_worker.owner, billhook_worker.engine, billhook_worker.handlers, billhook_worker.started_at, billhook_worker.host, billhook_worker.pid, billhook_worker.pid_space, billhook_worker.pid_ticks, billhook_worker.threads, billhook_worker.seen_at, billhook_worker.stopped_at, billhook_worker.died_at, billhook_worker.held_at, billhook_worker.held_why, billhook_release.name AS release
FROM billhook_worker LEFT OUTER JOIN billhook_release ON billhook_release.id = billhook_worker.release_id
WHERE billhook_worker.engine != ? ORDER BY billhook_worker.started_at, billhook_worker.owner
--> SCAN billhook_worker
--> SEARCH billhook_release USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN

-- running/workers.py worker_times
SELECT max(billhook_worker.seen_at) FILTER (WHERE billhook_worker.stopped_at IS NULL AND billhook_worker.engine != ?) AS anon_1, max(billhook_worker.stopped_at) AS max_1
FROM billhook_worker
--> SCAN billhook_worker

-- sqlite/database.py SqliteDatabase.facts
PRAGMA fullfsync

-- sqlite/database.py SqliteDatabase.facts
PRAGMA journal_mode

-- sqlite/database.py SqliteDatabase.facts
PRAGMA synchronous

-- storing/ingest.py _insert
INSERT INTO delivery (source, "key", variant, event_type, type_field, conflict_of, headers, state, error, signed_at, received_at, digest, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id
--> SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (delivery_id=?)

-- storing/ingest.py _of_keys
SELECT delivery."key", delivery.variant, delivery.id, coalesce(delivery.sent_as, delivery.event_type) AS coalesce_1, delivery.digest, delivery.error, delivery.type_field, delivery.also_sent_as
FROM delivery
WHERE delivery.source = ? AND delivery."key" IN (SELECT value FROM json_each(?))
--> SEARCH delivery USING INDEX sqlite_autoindex_delivery_1 (source=? AND key=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- storing/ingest.py _store_others
UPDATE delivery SET also_sent_as=?, error=? WHERE delivery.id = ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)

-- tables/handler_names.py present_names
SELECT billhook_handler.name, billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.renamed_to IS NOT NULL
--> SCAN billhook_handler

-- watching/backlog_pace.py _oldest_unread_at
SELECT delivery.received_at
FROM delivery
WHERE delivery.state IN ('received') ORDER BY delivery.id
 LIMIT ? OFFSET ?
--> SCAN delivery USING INDEX delivery_received_idx

-- watching/backlog_pace.py _within_limit
SELECT delivery.received_at
FROM delivery
WHERE delivery.id <= (SELECT max(delivery.id) AS max_1
FROM delivery) - ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid<?)
--> SEARCH delivery

-- watching/backlog_pace.py _within_limit
SELECT run.finished_at
FROM run
WHERE run.finished_at >= ? AND run.finished_at <= ? ORDER BY run.finished_at DESC
 LIMIT ? OFFSET ?
--> SEARCH run USING COVERING INDEX run_finished_at_idx (finished_at>? AND finished_at<?)

-- watching/backlog_pace.py first_untried_at
SELECT CASE WHEN (anon_2.not_before > delivery.received_at) THEN anon_2.not_before ELSE delivery.received_at END AS anon_1
FROM (SELECT run.delivery_id AS delivery_id, run.not_before AS not_before
FROM run
WHERE run.state IN ('due', 'running') AND run.state = ? AND run.handler = ? AND run.due_at <= ? AND run.attempts = ? ORDER BY run.due_at
 LIMIT ? OFFSET ?) AS anon_2, delivery
WHERE delivery.id = anon_2.delivery_id
--> SEARCH run USING INDEX run_claim_idx (state=? AND handler=? AND due_at<?)
--> SCAN anon_2
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)

-- watching/backlog_pace.py grows
SELECT count(*) AS count_1
FROM delivery
WHERE delivery.id > (SELECT max(delivery.id) AS max_1
FROM delivery) - ? AND delivery.received_at >= ? AND delivery.received_at <= ? AND delivery.conflict_of IS NULL
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid>?)
--> SEARCH delivery

-- watching/backlog_pace.py grows
SELECT count(distinct(finished.delivery_id)) AS count_1
FROM (SELECT run.delivery_id AS delivery_id
FROM run
WHERE run.finished_at >= ? AND run.finished_at <= ? ORDER BY run.finished_at DESC
 LIMIT ? OFFSET ?) AS finished
WHERE NOT (EXISTS (SELECT run_1.id
FROM run AS run_1
WHERE run_1.delivery_id = finished.delivery_id AND (run_1.state IN (SELECT value FROM json_each(?)) OR run_1.state = ? AND run_1.due_at <= ?) AND run_1.handler IN (SELECT value FROM json_each(?)) = 0))
--> SEARCH run USING INDEX run_finished_at_idx (finished_at>? AND finished_at<?)
--> SCAN finished
--> SEARCH run_1 USING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- watching/deaths.py lost_before
SELECT billhook_worker.owner
FROM billhook_worker
WHERE billhook_worker.stopped_at IS NULL AND billhook_worker.engine != ? AND (billhook_worker.died_at IS NOT NULL OR billhook_worker.host = ? AND (billhook_worker.pid_space IS NOT ? OR billhook_worker.pid_space IS NULL)) AND billhook_worker.owner != ? AND billhook_worker.seen_at > ?
 LIMIT ? OFFSET ?
--> SEARCH billhook_worker USING INDEX billhook_worker_seen_at_idx (seen_at>?)

-- watching/deaths.py record_death_of_child
SELECT billhook_worker.owner
FROM billhook_worker
WHERE billhook_worker.pid_space = ? AND billhook_worker.pid = ? AND billhook_worker.seen_at >= ?
--> SEARCH billhook_worker USING INDEX billhook_worker_seen_at_idx (seen_at>?)

-- watching/deaths.py record_death_of_child
UPDATE billhook_worker SET died_at=? WHERE billhook_worker.pid_space = ? AND billhook_worker.pid = ? AND billhook_worker.seen_at >= ? AND billhook_worker.stopped_at IS NULL AND billhook_worker.engine != ? AND billhook_worker.died_at IS NULL
--> SEARCH billhook_worker USING INDEX billhook_worker_seen_at_idx (seen_at>?)

-- watching/deaths.py record_deaths
DELETE FROM billhook_worker WHERE billhook_worker.owner IN (SELECT billhook_worker.owner
FROM billhook_worker
WHERE billhook_worker.died_at IS NOT NULL ORDER BY billhook_worker.seen_at DESC
 LIMIT ? OFFSET ?)
--> SEARCH billhook_worker USING COVERING INDEX sqlite_autoindex_billhook_worker_1 (owner=?)
--> SCAN billhook_worker USING INDEX billhook_worker_seen_at_idx

-- watching/deaths.py record_deaths
SELECT billhook_worker.owner, billhook_worker.started_at, billhook_worker.seen_at, billhook_worker.pid, billhook_worker.pid_ticks
FROM billhook_worker
WHERE billhook_worker.stopped_at IS NULL AND billhook_worker.engine != ? AND billhook_worker.died_at IS NULL AND billhook_worker.pid_space = ? ORDER BY billhook_worker.owner
--> SCAN billhook_worker USING INDEX sqlite_autoindex_billhook_worker_1

-- watching/deaths.py record_deaths
UPDATE billhook_worker SET died_at=? WHERE billhook_worker.owner = ? AND billhook_worker.stopped_at IS NULL AND billhook_worker.engine != ? AND billhook_worker.died_at IS NULL
--> SEARCH billhook_worker USING INDEX sqlite_autoindex_billhook_worker_1 (owner=?)

-- watching/disagreements.py _processes
SELECT billhook_release.name, billhook_handler_list.id, billhook_handler_list.content, billhook_handler_list.live_since
FROM billhook_worker JOIN billhook_handler_list ON billhook_handler_list.id = billhook_worker.list_id LEFT OUTER JOIN billhook_release ON billhook_release.id = billhook_worker.release_id
WHERE billhook_worker.stopped_at IS NULL AND billhook_worker.seen_at > ? AND billhook_worker.held_at IS NULL ORDER BY billhook_handler_list.id DESC, billhook_worker.started_at
--> SEARCH billhook_worker USING INDEX billhook_worker_seen_at_idx (seen_at>?)
--> SEARCH billhook_handler_list USING INTEGER PRIMARY KEY (rowid=?)
--> SEARCH billhook_release USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN

-- watching/disagreements.py _unhandled
SELECT anon_1.received_at, anon_1.state, EXISTS (SELECT run.id
FROM run
WHERE run.delivery_id = anon_1.id) AS anon_2
FROM (SELECT delivery.id AS id, delivery.received_at AS received_at, delivery.state AS state
FROM delivery
WHERE delivery.event_type = ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?) AS anon_1 ORDER BY anon_1.id DESC
--> SEARCH delivery USING INDEX delivery_event_type_id_idx (event_type=?)
--> SCAN anon_1
--> SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (delivery_id=?)

-- watching/disagreements.py read_gone
SELECT billhook_handler_list.content
FROM billhook_handler_list
WHERE billhook_handler_list.planned_at > ? ORDER BY billhook_handler_list.id DESC
 LIMIT ? OFFSET ?
--> SCAN billhook_handler_list

-- watching/disagreements.py read_lacking
SELECT billhook_handler_list.missed, billhook_handler_list.missed_names, billhook_handler_list.missed_at
FROM billhook_handler_list
WHERE billhook_handler_list.missed > ? AND billhook_handler_list.missed_at > ? ORDER BY billhook_handler_list.id
--> SCAN billhook_handler_list

-- watching/handler_backlogs.py _rates
SELECT anon_1.handler, count(*) AS count_1, min(anon_1.finished_at) AS min_1
FROM (SELECT run.handler AS handler, run.finished_at AS finished_at
FROM run
WHERE run.finished_at > ? AND run.finished_at <= ? ORDER BY run.finished_at DESC
 LIMIT ? OFFSET ?) AS anon_1 GROUP BY anon_1.handler
--> SEARCH run USING INDEX run_finished_at_idx (finished_at>? AND finished_at<?)
--> SCAN anon_1

-- watching/handler_backlogs.py _rates
SELECT min(billhook_worker.started_at) AS min_1
FROM billhook_worker
WHERE billhook_worker.engine != ? AND billhook_worker.seen_at > ? AND billhook_worker.seen_at <= ?
--> SEARCH billhook_worker USING INDEX billhook_worker_seen_at_idx (seen_at>? AND seen_at<?)

-- watching/handler_backlogs.py read_handler_backlogs
SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.next_start_at > ?
--> SCAN billhook_handler

-- watching/handler_backlogs.py read_handler_backlogs
WITH RECURSIVE due (handler) AS (
        SELECT (SELECT handler FROM run WHERE state IN ('due', 'running') AND state = 'due' ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM run WHERE state IN ('due', 'running') AND state = 'due' AND run.handler > due.handler
            ORDER BY handler LIMIT 1
        ) FROM due WHERE due.handler IS NOT NULL
    ), running (handler) AS (
        SELECT (SELECT handler FROM run WHERE state IN ('due', 'running') AND state = 'running' ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM run WHERE state IN ('due', 'running') AND state = 'running' AND run.handler > running.handler
            ORDER BY handler LIMIT 1
        ) FROM running WHERE running.handler IS NOT NULL
    ), ordered (handler) AS (
        SELECT (SELECT handler FROM run WHERE order_key IS NOT NULL AND state IN ('waiting', 'due', 'running') ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM run WHERE order_key IS NOT NULL AND state IN ('waiting', 'due', 'running') AND run.handler > ordered.handler
            ORDER BY handler LIMIT 1
        ) FROM ordered WHERE ordered.handler IS NOT NULL
    ), dead (handler) AS (
        SELECT (SELECT handler FROM run WHERE state IN ('dead') ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM run WHERE state IN ('dead') AND run.handler > dead.handler
            ORDER BY handler LIMIT 1
        ) FROM dead WHERE dead.handler IS NOT NULL
    ) SELECT 'due' AS state, handler, (
    SELECT count(*) FROM (
        SELECT 1 FROM run WHERE state IN ('due', 'running') AND state = 'due' AND run.handler = due.handler AND due_at <= ? LIMIT ?
    ) AS counted
) AS number, (SELECT due_at FROM run WHERE state IN ('due', 'running') AND state = 'due' AND run.handler = due.handler ORDER BY due_at LIMIT 1) AS since FROM due WHERE handler IS NOT NULL UNION ALL SELECT 'retrying' AS state, handler, (
    SELECT count(*) FROM (
        SELECT 1 FROM run WHERE state IN ('due', 'running') AND state = 'due' AND run.handler = due.handler AND due_at > ? LIMIT ?
    ) AS counted
) AS number, (SELECT due_at FROM run WHERE state IN ('due', 'running') AND state = 'due' AND run.handler = due.handler ORDER BY due_at DESC LIMIT 1) AS since FROM due WHERE handler IS NOT NULL UNION ALL SELECT 'put off' AS state, handler, (
    SELECT count(*) FROM (
        SELECT 1 FROM run WHERE state IN ('due', 'running') AND state = 'due' AND run.handler = due.handler AND FALSE LIMIT ?
    ) AS counted
) AS number, (
    SELECT not_before FROM run WHERE state IN ('due', 'running') AND state = 'due' AND run.handler = due.handler ORDER BY due_at DESC LIMIT 1
) AS since FROM due WHERE handler IS NOT NULL UNION ALL SELECT 'running' AS state, handler, (
    SELECT count(*) FROM (
        SELECT 1 FROM run WHERE state IN ('due', 'running') AND state = 'running' AND run.handler = running.handler AND queued = 0 LIMIT ?
    ) AS counted
) AS number, NULL AS since FROM running WHERE handler IS NOT NULL UNION ALL SELECT 'queued' AS state, handler, (
    SELECT count(*) FROM (
        SELECT 1 FROM run WHERE state IN ('due', 'running') AND state = 'running' AND run.handler = running.handler AND queued = 1 LIMIT ?
    ) AS counted
) AS number, NULL AS since FROM running WHERE handler IS NOT NULL UNION ALL SELECT 'waiting' AS state, handler, (
    SELECT count(*) FROM (
        SELECT 1 FROM run WHERE order_key IS NOT NULL AND state IN ('waiting', 'due', 'running') AND run.handler = ordered.handler AND state = 'waiting' LIMIT ?
    ) AS counted
) AS number, NULL AS since FROM ordered WHERE handler IS NOT NULL UNION ALL SELECT 'dead' AS state, handler, (
    SELECT count(*) FROM (
        SELECT 1 FROM run WHERE state IN ('dead') AND run.handler = dead.handler AND TRUE LIMIT ?
    ) AS counted
) AS number, NULL AS since FROM dead WHERE handler IS NOT NULL
--> SCAN CONSTANT ROW
--> SEARCH run USING COVERING INDEX run_claim_idx (state=?)
--> SCAN due
--> SEARCH run USING COVERING INDEX run_claim_idx (state=? AND handler>?)
--> SCAN due
--> SEARCH run USING COVERING INDEX run_claim_idx (state=? AND handler=? AND due_at<?)
--> SCAN counted
--> SEARCH run USING COVERING INDEX run_claim_idx (state=? AND handler=?)
--> SCAN due
--> SEARCH run USING COVERING INDEX run_claim_idx (state=? AND handler=? AND due_at>?)
--> SCAN counted
--> SEARCH run USING COVERING INDEX run_claim_idx (state=? AND handler=?)
--> SCAN due
--> SEARCH run USING COVERING INDEX run_claim_idx (state=? AND handler=?)
--> SCAN counted
--> SEARCH run USING INDEX run_claim_idx (state=? AND handler=?)
--> SCAN CONSTANT ROW
--> SEARCH run USING COVERING INDEX run_claim_idx (state=?)
--> SCAN running
--> SEARCH run USING COVERING INDEX run_claim_idx (state=? AND handler>?)
--> SCAN running
--> SEARCH run USING INDEX run_claim_idx (state=? AND handler=?)
--> SCAN counted
--> SCAN running
--> SEARCH run USING INDEX run_claim_idx (state=? AND handler=?)
--> SCAN counted
--> SCAN CONSTANT ROW
--> SCAN run USING COVERING INDEX run_order_idx
--> SCAN ordered
--> SEARCH run USING COVERING INDEX run_order_idx (handler>?)
--> SCAN ordered
--> SEARCH run USING COVERING INDEX run_order_idx (handler=? AND order_key>?)
--> SCAN counted
--> SCAN CONSTANT ROW
--> SCAN run USING COVERING INDEX run_dead_idx
--> SCAN dead
--> SEARCH run USING COVERING INDEX run_dead_idx (handler>?)
--> SCAN dead
--> SEARCH run USING COVERING INDEX run_dead_idx (handler=?)
--> SCAN counted

-- watching/issue_hours.py by_hour
SELECT billhook_count.cause, billhook_count.hour, billhook_count.number
FROM billhook_count
WHERE billhook_count.what = ? AND billhook_count.hour >= ? AND billhook_count.cause IN (SELECT value FROM json_each(?))
--> SEARCH billhook_count USING PRIMARY KEY (hour>?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- watching/issue_hours.py by_hour
SELECT billhook_issue.fingerprint, (SELECT CAST(json_group_object(by_hour.hour, by_hour.number) AS TEXT) AS json_group_object_1
FROM (SELECT substr(newest.failed_at, ?, ?) AS hour, count(*) AS number
FROM (SELECT failure.failed_at AS failed_at
FROM failure
WHERE failure.fingerprint = billhook_issue.fingerprint AND failure.id > coalesce((SELECT latest.id
FROM (SELECT failure.id AS id, failure.failed_at AS failed_at
FROM failure ORDER BY failure.id DESC
 LIMIT ? OFFSET ?) AS latest
WHERE latest.failed_at < ?
 LIMIT ? OFFSET ?), ?) ORDER BY failure.id DESC
 LIMIT ? OFFSET ?) AS newest
WHERE newest.failed_at >= ? GROUP BY hour) AS by_hour) AS anon_1
FROM billhook_issue
WHERE billhook_issue.fingerprint IN (SELECT value FROM json_each(?))
--> SEARCH billhook_issue USING COVERING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH failure USING INDEX failure_fingerprint_idx (fingerprint=? AND id>?)
--> SCAN failure
--> SCAN latest
--> SCAN newest
--> SCAN by_hour

-- watching/issue_updates.py _is_over
SELECT DISTINCT run.id, run.delivery_id
FROM run JOIN failure ON failure.run_id = run.id
WHERE failure.fingerprint = ? AND (run.state = ? OR run.state IN ('due', 'running') AND run.attempts > ?)
 LIMIT ? OFFSET ?
--> SEARCH failure USING COVERING INDEX failure_fingerprint_idx (fingerprint=?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)

-- watching/issue_updates.py _is_over
-- watching/issues.py quarantined_by_issue
-- watching/occurrences.py occurrences
SELECT delivery.id, delivery.event_type, delivery.error, delivery.received_at
FROM delivery
WHERE delivery.state IN ('dead', 'quarantined') AND delivery.state = ? ORDER BY delivery.id DESC
 LIMIT ? OFFSET ?
--> SEARCH delivery USING INDEX delivery_failed_idx (state=?)

-- watching/issue_updates.py _open
INSERT INTO billhook_issue (fingerprint, kind, subject, title, place, state, opened_at, changed_at, who, why, snoozed_until, snoozed_more, notified) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

-- watching/issue_updates.py _open
UPDATE billhook_issue SET title=?, place=?, state=?, opened_at=?, changed_at=?, who=?, why=?, snoozed_until=?, snoozed_more=?, notified=? WHERE billhook_issue.fingerprint = ? AND billhook_issue.changed_at = ?
--> SEARCH billhook_issue USING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)

-- watching/issue_updates.py update_issues
DELETE FROM billhook_count WHERE billhook_count.what = ? AND billhook_count.cause IN (SELECT value FROM json_each(?))
--> SCAN billhook_count
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- watching/issue_updates.py update_issues
DELETE FROM billhook_issue WHERE billhook_issue.fingerprint IN (SELECT value FROM json_each(?)) AND billhook_issue.changed_at < ? RETURNING fingerprint
--> SEARCH billhook_issue USING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- watching/issue_updates.py update_issues
SELECT billhook_issue.fingerprint, billhook_issue.kind, billhook_issue.subject, billhook_issue.title, billhook_issue.place, billhook_issue.state, billhook_issue.opened_at, billhook_issue.changed_at, billhook_issue.who, billhook_issue.why, billhook_issue.snoozed_until, billhook_issue.snoozed_more, billhook_issue.notified
FROM billhook_issue
--> SCAN billhook_issue

-- watching/issue_updates.py update_issues
UPDATE billhook_issue SET state=?, changed_at=?, who=?, why=?, snoozed_until=?, snoozed_more=? WHERE billhook_issue.fingerprint IN (SELECT value FROM json_each(?)) AND (billhook_issue.state IN (SELECT value FROM json_each(?)) OR billhook_issue.snoozed_until <= ?)
--> SEARCH billhook_issue USING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- watching/issues.py _counted
SELECT billhook_count.hour, billhook_count.number, billhook_count.last_at
FROM billhook_count
WHERE billhook_count.what = ? AND billhook_count.cause = ?
--> SCAN billhook_count

-- watching/issues.py _counted
SELECT count(*) AS count_1, (SELECT failure.failed_at
FROM failure
WHERE failure.fingerprint = ? ORDER BY failure.id
 LIMIT ? OFFSET ?) AS anon_1, (SELECT failure.failed_at
FROM failure
WHERE failure.fingerprint = ? ORDER BY failure.id DESC
 LIMIT ? OFFSET ?) AS anon_2, count(distinct(failure.run_id)) AS count_2
FROM failure
WHERE failure.fingerprint = ?
--> SEARCH failure USING COVERING INDEX failure_fingerprint_idx (fingerprint=?)
--> SEARCH failure USING INDEX failure_fingerprint_idx (fingerprint=?)
--> SEARCH failure USING INDEX failure_fingerprint_idx (fingerprint=?)

-- watching/issues.py _counted
SELECT count(*) AS count_1, min(run.finished_at) AS min_1, max(run.finished_at) AS max_1, count(*) AS count_2
FROM run
WHERE run.state IN ('dead') AND run.handler IN (SELECT ? AS anon_1 UNION SELECT coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?) AS coalesce_1 UNION SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.renamed_to = coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?))
--> SEARCH run USING COVERING INDEX run_dead_idx (handler=?)
--> SCAN CONSTANT ROW
--> SCAN CONSTANT ROW
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)

-- watching/issues.py _counted
SELECT run.delivery_id, NULL AS anon_1
FROM run
WHERE run.state IN ('dead') AND run.handler IN (SELECT ? AS anon_2 UNION SELECT coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?) AS coalesce_1 UNION SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.renamed_to = coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?)) ORDER BY run.finished_at DESC
 LIMIT ? OFFSET ?
--> SEARCH run USING INDEX run_dead_idx (handler=?)
--> SCAN CONSTANT ROW
--> SCAN CONSTANT ROW
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)

-- watching/issues.py _counted
SELECT run.delivery_id, failure.error
FROM run JOIN failure ON failure.run_id = run.id
WHERE failure.fingerprint = ? ORDER BY failure.id DESC
 LIMIT ? OFFSET ?
--> SEARCH failure USING INDEX failure_fingerprint_idx (fingerprint=?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)

-- watching/issues.py _counted
SELECT run.id, run.delivery_id
FROM run JOIN failure ON failure.run_id = run.id
WHERE failure.fingerprint = ? AND run.state IN ('dead', 'waiting', 'due', 'running')
 LIMIT ? OFFSET ?
--> SEARCH failure USING COVERING INDEX failure_fingerprint_idx (fingerprint=?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)

-- watching/issues.py _delivery_ids
SELECT anon_1.delivery_id
FROM (SELECT DISTINCT anon_2.delivery_id AS delivery_id
FROM (SELECT DISTINCT run.id AS id, run.delivery_id AS delivery_id
FROM run JOIN failure ON failure.run_id = run.id
WHERE failure.fingerprint = ? AND (run.state = ? OR run.state IN ('due', 'running') AND run.attempts > ?)) AS anon_2) AS anon_1
WHERE anon_1.delivery_id > ? ORDER BY anon_1.delivery_id
 LIMIT ? OFFSET ?
--> SEARCH failure USING COVERING INDEX failure_fingerprint_idx (fingerprint=?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN anon_2
--> SCAN anon_1

-- watching/issues.py _with_numbers
SELECT delivery.id, delivery.identifier_1, delivery.identifier_2, delivery.identifier_3
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?))
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- watching/issues.py change_issue
UPDATE billhook_issue SET state=?, changed_at=?, who=?, why=?, snoozed_until=?, snoozed_more=? WHERE billhook_issue.fingerprint = ?
--> SEARCH billhook_issue USING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)

-- watching/issues.py clear_texts
SELECT DISTINCT run.handler
FROM run
WHERE run.delivery_id IN (SELECT value FROM json_each(?))
--> SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- watching/issues.py clear_texts
SELECT billhook_issue.fingerprint
FROM billhook_issue
WHERE billhook_issue.kind = ? AND (billhook_issue.subject IN (SELECT delivery.event_type
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?))) OR billhook_issue.subject IN (SELECT delivery.sent_as
FROM delivery
WHERE delivery.id IN (SELECT value FROM json_each(?))))
--> SCAN billhook_issue
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH delivery USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- watching/issues.py clear_texts
SELECT failure.fingerprint
FROM failure JOIN run ON run.id = failure.run_id
WHERE run.delivery_id IN (SELECT value FROM json_each(?))
--> SEARCH run USING COVERING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH failure USING INDEX failure_run_id_idx (run_id=?)

-- watching/issues.py count_issues
SELECT billhook_issue.state, count(*) AS count_1
FROM billhook_issue GROUP BY billhook_issue.state
--> SCAN billhook_issue

-- watching/issues.py count_replayable
SELECT anon_1.state, count(*) AS count_1
FROM (SELECT DISTINCT run.id AS id, run.delivery_id AS delivery_id, run.state AS state
FROM run JOIN failure ON failure.run_id = run.id
WHERE failure.fingerprint = ? AND (run.state = ? OR run.state IN ('due', 'running') AND run.attempts > ?)) AS anon_1 GROUP BY anon_1.state
--> SEARCH failure USING COVERING INDEX failure_fingerprint_idx (fingerprint=?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN anon_1

-- watching/issues.py issue_ids
SELECT billhook_issue.fingerprint
FROM billhook_issue
WHERE substr(billhook_issue.fingerprint, ?, ?) = ? ORDER BY billhook_issue.fingerprint
--> SCAN billhook_issue USING COVERING INDEX sqlite_autoindex_billhook_issue_1

-- watching/issues.py list_issues
SELECT billhook_issue.fingerprint, billhook_issue.kind, billhook_issue.subject, billhook_issue.title, billhook_issue.place, billhook_issue.state, billhook_issue.opened_at, billhook_issue.changed_at, billhook_issue.who, billhook_issue.why, billhook_issue.snoozed_until, billhook_issue.snoozed_more, billhook_issue.notified
FROM billhook_issue
WHERE billhook_issue.fingerprint IN (SELECT value FROM json_each(?)) ORDER BY billhook_issue.state = ?, billhook_issue.changed_at DESC
 LIMIT ? OFFSET ?
--> SEARCH billhook_issue USING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- watching/issues.py list_issues
SELECT billhook_issue.fingerprint, billhook_issue.kind, billhook_issue.subject, billhook_issue.title, billhook_issue.place, billhook_issue.state, billhook_issue.opened_at, billhook_issue.changed_at, billhook_issue.who, billhook_issue.why, billhook_issue.snoozed_until, billhook_issue.snoozed_more, billhook_issue.notified
FROM billhook_issue
WHERE billhook_issue.state IN (SELECT value FROM json_each(?)) AND billhook_issue.fingerprint IN (SELECT value FROM json_each(?)) ORDER BY billhook_issue.state = ?, billhook_issue.changed_at DESC
 LIMIT ? OFFSET ?
--> SEARCH billhook_issue USING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- watching/issues.py list_issues
SELECT billhook_issue.fingerprint, billhook_issue.kind, billhook_issue.subject, billhook_issue.title, billhook_issue.place, billhook_issue.state, billhook_issue.opened_at, billhook_issue.changed_at, billhook_issue.who, billhook_issue.why, billhook_issue.snoozed_until, billhook_issue.snoozed_more, billhook_issue.notified
FROM billhook_issue
WHERE billhook_issue.state IN (SELECT value FROM json_each(?)) ORDER BY billhook_issue.state = ?, billhook_issue.changed_at DESC
 LIMIT ? OFFSET ?
--> SCAN billhook_issue
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- watching/issues.py list_issues
SELECT billhook_issue.fingerprint, billhook_issue.kind, billhook_issue.subject, billhook_issue.title, billhook_issue.place, billhook_issue.state, billhook_issue.opened_at, billhook_issue.changed_at, billhook_issue.who, billhook_issue.why, billhook_issue.snoozed_until, billhook_issue.snoozed_more, billhook_issue.notified
FROM billhook_issue
WHERE billhook_issue.subject IN (SELECT ? AS anon_1 UNION SELECT coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?) AS coalesce_1 UNION SELECT billhook_handler.name
FROM billhook_handler
WHERE billhook_handler.renamed_to = coalesce((SELECT billhook_handler.renamed_to
FROM billhook_handler
WHERE billhook_handler.name = ?), ?)) ORDER BY billhook_issue.state = ?, billhook_issue.changed_at DESC
 LIMIT ? OFFSET ?
--> SCAN billhook_issue
--> SCAN CONSTANT ROW
--> SCAN CONSTANT ROW
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)
--> SCAN billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1
--> SEARCH billhook_handler USING INDEX sqlite_autoindex_billhook_handler_1 (name=?)

-- watching/issues.py list_open
SELECT billhook_issue.kind, billhook_issue.subject, billhook_issue.title, CASE WHEN billhook_issue.kind IN (SELECT value FROM json_each(?)) = 0 THEN ? WHEN ((SELECT failure.failed_at
FROM failure
WHERE failure.fingerprint = billhook_issue.fingerprint ORDER BY failure.id DESC
 LIMIT ? OFFSET ?) > ?) THEN ? ELSE (SELECT run.id
FROM run JOIN failure ON failure.run_id = run.id
WHERE failure.fingerprint = billhook_issue.fingerprint AND run.state IN ('dead', 'waiting', 'due', 'running')
 LIMIT ? OFFSET ?) IS NOT NULL END AS anon_1
FROM billhook_issue
WHERE billhook_issue.state = ?
--> SCAN billhook_issue
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH failure USING INDEX failure_fingerprint_idx (fingerprint=?)
--> SEARCH failure USING COVERING INDEX failure_fingerprint_idx (fingerprint=?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)

-- watching/issues.py newest_traceback
SELECT run.delivery_id, coalesce(failure.traceback, failure.error) AS coalesce_1
FROM failure JOIN run ON run.id = failure.run_id
WHERE failure.fingerprint = ? ORDER BY failure.id DESC
 LIMIT ? OFFSET ?
--> SEARCH failure USING INDEX failure_fingerprint_idx (fingerprint=?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)

-- watching/notifications.py _states
SELECT billhook_notifier.addresses
FROM billhook_notifier
--> SCAN billhook_notifier

-- watching/notifications.py looked_at
SELECT billhook_notifier.looked_at
FROM billhook_notifier
--> SCAN billhook_notifier

-- watching/notifications.py read_due
SELECT billhook_issue.fingerprint
FROM billhook_issue
WHERE billhook_issue.kind != ? AND billhook_issue.state = ? AND billhook_issue.notified = ?
--> SCAN billhook_issue

-- watching/notifications.py read_due
SELECT billhook_issue.kind
FROM billhook_issue
WHERE billhook_issue.kind != ? AND billhook_issue.state IN (SELECT value FROM json_each(?))
 LIMIT ? OFFSET ?
--> SCAN billhook_issue
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- watching/notifications.py record_look
UPDATE billhook_notifier SET looked_at=?
--> SCAN billhook_notifier

-- watching/notifications.py record_state
UPDATE billhook_issue SET notified=? WHERE billhook_issue.fingerprint = ? AND billhook_issue.opened_at = ?
--> SEARCH billhook_issue USING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)

-- watching/notifications.py record_state
UPDATE billhook_notifier SET addresses=?
--> SCAN billhook_notifier

-- watching/notifications.py release_lease
UPDATE billhook_notifier SET leased_until=? WHERE billhook_notifier.owner = ?
--> SCAN billhook_notifier

-- watching/notifications.py take_lease
SELECT billhook_notifier.owner
FROM billhook_notifier
--> SCAN billhook_notifier

-- watching/notifications.py take_lease
UPDATE billhook_notifier SET owner=?, leased_until=? WHERE billhook_notifier.owner = ? OR billhook_notifier.owner = ? OR billhook_notifier.leased_until < ?
--> SCAN billhook_notifier

-- watching/occurrences.py occurrences
WITH RECURSIVE own (fingerprint) AS (
        SELECT (SELECT fingerprint FROM failure WHERE fingerprint IS NOT NULL ORDER BY fingerprint LIMIT 1)
        UNION ALL SELECT (
            SELECT fingerprint FROM failure WHERE fingerprint IS NOT NULL AND failure.fingerprint > own.fingerprint
            ORDER BY fingerprint LIMIT 1
        ) FROM own WHERE own.fingerprint IS NOT NULL
    )
    SELECT (
        SELECT id FROM failure WHERE failure.fingerprint = own.fingerprint ORDER BY id DESC LIMIT 1
    ) AS id FROM own WHERE fingerprint IS NOT NULL
    LIMIT ?
--> SCAN CONSTANT ROW
--> SEARCH failure USING COVERING INDEX failure_fingerprint_idx (fingerprint>?)
--> SCAN own
--> SEARCH failure USING COVERING INDEX failure_fingerprint_idx (fingerprint>?)
--> SCAN own
--> SEARCH failure USING COVERING INDEX failure_fingerprint_idx (fingerprint=?)

-- watching/occurrences.py occurrences
WITH RECURSIVE own (handler) AS (
        SELECT (SELECT handler FROM run WHERE state IN ('dead') ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM run WHERE state IN ('dead') AND run.handler > own.handler
            ORDER BY handler LIMIT 1
        ) FROM own WHERE own.handler IS NOT NULL
    )
    SELECT handler, (
        SELECT finished_at FROM (
            SELECT id, finished_at FROM run WHERE state IN ('dead') AND run.handler = own.handler
            AND finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT ?
        ) AS dead WHERE NOT EXISTS (
            SELECT 1 FROM failure WHERE failure.run_id = dead.id AND failure.fingerprint IS NOT NULL
        ) ORDER BY finished_at DESC LIMIT 1
    ) AS finished_at FROM own WHERE handler IS NOT NULL
    LIMIT ?
--> SCAN CONSTANT ROW
--> SCAN run USING COVERING INDEX run_dead_idx
--> SCAN own
--> SEARCH run USING COVERING INDEX run_dead_idx (handler>?)
--> SCAN own
--> SEARCH run USING COVERING INDEX run_dead_idx (handler=? AND finished_at>?)
--> SCAN dead
--> SEARCH failure USING INDEX failure_run_id_idx (run_id=?)

-- watching/occurrences.py occurrences
SELECT failure.fingerprint, run.handler, failure.error, failure.place, failure.failed_at
FROM failure JOIN run ON run.id = failure.run_id
WHERE failure.id IN (SELECT value FROM json_each(?))
--> SEARCH failure USING INTEGER PRIMARY KEY (rowid=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)

-- watching/occurrences.py occurrences_in_figures
SELECT billhook_issue.fingerprint
FROM billhook_issue
WHERE billhook_issue.fingerprint = ? AND billhook_issue.state IN (SELECT value FROM json_each(?))
--> SEARCH billhook_issue USING INDEX sqlite_autoindex_billhook_issue_1 (fingerprint=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:

-- watching/overview.py _calls
SELECT handler, finished_at AS ended_at, duration_seconds FROM run
    WHERE finished_at >= ? AND duration_seconds IS NOT NULL
    UNION ALL
    SELECT run.handler, failed_at, failure.duration_seconds FROM failure JOIN run ON run.id = run_id
    WHERE failed_at >= ? AND retried = 1 AND failure.duration_seconds IS NOT NULL
    LIMIT ?
--> SEARCH run USING INDEX run_finished_at_idx (finished_at>?)
--> SEARCH failure USING INDEX failure_failed_at_idx (failed_at>?)
--> SEARCH run USING INTEGER PRIMARY KEY (rowid=?)

-- watching/overview.py _state
SELECT (SELECT count(*) FROM (SELECT 1 FROM delivery WHERE state IN ('received') LIMIT ?) AS counted) AS unread, (SELECT count(*) FROM (SELECT 1 FROM delivery WHERE state IN ('received', 'planned') AND state IN ('planned') LIMIT ?) AS counted) AS in_progress, (SELECT count(*) FROM (SELECT 1 FROM delivery WHERE state IN ('dead', 'quarantined') AND state IN ('dead') LIMIT ?) AS counted) AS dead, (SELECT count(*) FROM (SELECT 1 FROM delivery WHERE state IN ('dead', 'quarantined') AND state IN ('quarantined') LIMIT ?) AS counted) AS quarantined, (SELECT count(*) FROM (SELECT 1 FROM delivery WHERE conflict_of IS NOT NULL AND state IN ('quarantined') LIMIT ?) AS counted) AS conflicts,  (SELECT received_at FROM delivery WHERE state IN ('received', 'planned') ORDER BY id LIMIT 1) AS oldest_at, (SELECT received_at FROM delivery WHERE state IN ('received') ORDER BY id LIMIT 1) AS oldest_unread_at
--> SCAN CONSTANT ROW
--> SCAN delivery USING COVERING INDEX delivery_received_idx
--> SCAN counted
--> SCAN delivery USING INDEX delivery_unfinished_idx
--> SCAN counted
--> SEARCH delivery USING COVERING INDEX delivery_failed_idx (state=?)
--> SCAN counted
--> SEARCH delivery USING COVERING INDEX delivery_failed_idx (state=?)
--> SCAN counted
--> SCAN delivery USING INDEX delivery_conflict_idx
--> SCAN counted
--> SCAN delivery USING INDEX delivery_unfinished_idx
--> SCAN delivery USING INDEX delivery_received_idx

-- watching/overview.py read_overview
WITH RECURSIVE types (event_type) AS (
        SELECT (SELECT event_type FROM delivery WHERE TRUE ORDER BY event_type LIMIT 1)
        UNION ALL SELECT (
            SELECT event_type FROM delivery WHERE TRUE AND delivery.event_type > types.event_type
            ORDER BY event_type LIMIT 1
        ) FROM types WHERE types.event_type IS NOT NULL
    ), of_rows AS (
        SELECT event_type, (
            SELECT received_at FROM delivery WHERE delivery.event_type = types.event_type
            ORDER BY id DESC LIMIT 1
        ) AS last_at FROM types WHERE event_type IS NOT NULL LIMIT 500
    ) SELECT event_type, last_at FROM of_rows
    UNION ALL
    SELECT event_type, max(last_at) FROM billhook_count WHERE what = 'accepted' GROUP BY event_type
--> SCAN CONSTANT ROW
--> SCAN delivery USING COVERING INDEX delivery_event_type_id_idx
--> SCAN types
--> SEARCH delivery USING COVERING INDEX delivery_event_type_id_idx (event_type>?)
--> SCAN types
--> SEARCH delivery USING INDEX delivery_event_type_id_idx (event_type=?)
--> SCAN of_rows
--> SCAN billhook_count

-- watching/snoozes.py _happened_since
SELECT failure.failed_at
FROM failure
WHERE failure.fingerprint = ? ORDER BY failure.id DESC
 LIMIT ? OFFSET ?
--> SEARCH failure USING INDEX failure_fingerprint_idx (fingerprint=?)

-- watching/snoozes.py count_dead_of_snoozed
SELECT billhook_issue.fingerprint, billhook_issue.kind, billhook_issue.subject
FROM billhook_issue
WHERE billhook_issue.state = ?
--> SCAN billhook_issue

-- watching/snoozes.py count_dead_of_snoozed
SELECT count(*) AS count_1
FROM (SELECT delivery.id AS id
FROM delivery
WHERE delivery.state IN ('dead', 'quarantined') AND delivery.state = ? AND NOT (EXISTS (SELECT *
FROM run
WHERE run.delivery_id = delivery.id AND run.state IN ('dead') AND NOT (EXISTS (SELECT *
FROM failure
WHERE failure.run_id = run.id AND failure.fingerprint IN (SELECT value FROM json_each(?))))))
 LIMIT ? OFFSET ?) AS anon_1
--> SEARCH delivery USING COVERING INDEX delivery_failed_idx (state=?)
--> SEARCH run USING INDEX sqlite_autoindex_run_1 (delivery_id=?)
--> SEARCH failure USING INDEX failure_run_id_idx (run_id=?)
--> SCAN json_each VIRTUAL TABLE INDEX 1:
--> SCAN anon_1

-- watching/snoozes.py count_quarantined_of_snoozed
SELECT billhook_issue.fingerprint
FROM billhook_issue
WHERE billhook_issue.state = ? AND billhook_issue.kind = ?
--> SCAN billhook_issue

-- watching/snoozes.py snoozed_ids
SELECT billhook_issue.fingerprint
FROM billhook_issue
WHERE billhook_issue.state = ?
--> SCAN billhook_issue

-- watching/stalled.py _longest_seconds
SELECT anon_1.handler, max(anon_1.duration_seconds) AS max_1
FROM (SELECT run.handler AS handler, run.duration_seconds AS duration_seconds
FROM run
WHERE run.finished_at IS NOT NULL ORDER BY run.finished_at DESC
 LIMIT ? OFFSET ?) AS anon_1
WHERE anon_1.duration_seconds IS NOT NULL GROUP BY anon_1.handler
--> SEARCH run USING INDEX run_finished_at_idx (finished_at>?)
--> SCAN anon_1

-- watching/stalled.py read_hanging
SELECT run.handler, run.started_at
FROM run
WHERE run.state IN ('due', 'running') AND run.state = ? AND run.queued = ? AND run.started_at < ?
--> SEARCH run USING INDEX run_claim_idx (state=?)

-- watching/stalled.py read_held
SELECT billhook_worker.host, billhook_worker.pid, billhook_worker.owner, billhook_worker.held_at
FROM billhook_worker
WHERE billhook_worker.engine != ? AND billhook_worker.stopped_at IS NULL AND billhook_worker.died_at IS NULL AND billhook_worker.seen_at > ? ORDER BY billhook_worker.held_at, billhook_worker.owner
--> SEARCH billhook_worker USING INDEX billhook_worker_seen_at_idx (seen_at>?)

-- $1 pool, $2 session, $3 name, $4 start URL, $5 tags, $6 now, $7 seconds without a heartbeat
-- after which a node is silent, $8 telemetry, $9 node of the caller, $10 seconds without a heartbeat after which the
-- browsers of another node are not leased, $11 nodes that cannot be
-- reached: their browsers are not leased, and their tickets not waited for.
-- A browser of the caller's node goes first, without a sort of all idle ones, which is why there are two selections.
-- A browser of an earlier generation, or of an older version of the profile that the pool follows, is not leased.
-- A new request does not overtake the wait queue: it gets a browser only if no ticket of a living node waits.
-- The commit is asynchronous: the response is sent when the call's audit record is durable, which follows in the
-- same write-ahead log. A lease that is lost in a crash was never delivered.
WITH pool AS (
    SELECT id, project_id, name, timeout_seconds, start_url, generation,
        CASE WHEN refresh_on_profile_update THEN (SELECT version_id FROM profiles f WHERE f.id = profile_id) END AS followed_version_id,
        refresh_on_profile_update AND profile_id IS NOT NULL AS follows,
        set_config('synchronous_commit', 'off', true)
    FROM browser_pools WHERE id = $1 AND deleted_at IS NULL
), own AS (
    SELECT id FROM browsers
    WHERE pool_id = $1 AND state = 'idle' AND node_id = $9
        AND EXISTS (SELECT 1 FROM nodes WHERE id = $9 AND state = 'serving')
        AND EXISTS (
            SELECT 1 FROM pool
            WHERE pool.generation = browsers.generation
                AND (NOT follows OR browsers.profile_version_id IS NOT DISTINCT FROM followed_version_id)
        )
        AND NOT EXISTS (
            SELECT 1 FROM pool_waiters w JOIN nodes n ON n.id = w.node_id
            WHERE w.pool_id = $1 AND w.outcome IS NULL AND n.heartbeat_at > now() - make_interval(secs => $7)
                AND n.id <> ALL ($11)
        )
    ORDER BY created_at, id LIMIT 1 FOR UPDATE SKIP LOCKED
), other AS (
    SELECT id FROM browsers
    WHERE pool_id = $1 AND state = 'idle' AND node_id <> $9 AND node_id <> ALL ($11)
        AND NOT EXISTS (SELECT 1 FROM own)
        AND EXISTS (
            SELECT 1 FROM nodes n
            WHERE n.id = browsers.node_id AND n.state = 'serving' AND n.heartbeat_at > now() - make_interval(secs => $10)
        )
        AND EXISTS (
            SELECT 1 FROM pool
            WHERE pool.generation = browsers.generation
                AND (NOT follows OR browsers.profile_version_id IS NOT DISTINCT FROM followed_version_id)
        )
        AND NOT EXISTS (
            SELECT 1 FROM pool_waiters w JOIN nodes n ON n.id = w.node_id
            WHERE w.pool_id = $1 AND w.outcome IS NULL AND n.heartbeat_at > now() - make_interval(secs => $7)
                AND n.id <> ALL ($11)
        )
    ORDER BY created_at, id LIMIT 1 FOR UPDATE SKIP LOCKED
), picked AS (
    SELECT id FROM own UNION ALL SELECT id FROM other
), leased AS (
    UPDATE browsers b SET state = 'leased', session_id = $2 FROM picked
    WHERE b.id = picked.id RETURNING b.*
)
INSERT INTO sessions (
    id, project_id, node_id, browser_id, pool_id, pool_name,
    shape, policy, extension_ids, proxy_id,
    profile_id, profile_version_id, save_profile, memory_places, network,
    name, timeout_seconds, start_url, tags, telemetry, state, created_at, last_active_at
)
SELECT
    $2, pool.project_id, leased.node_id, leased.id, pool.id, pool.name,
    leased.shape, leased.policy, leased.extension_ids, leased.proxy_id, leased.profile_id, leased.profile_version_id, false,
    leased.memory_places, leased.network,
    $3, pool.timeout_seconds, coalesce($4, pool.start_url), $5, $8, 'active', $6, $6
FROM leased, pool
-- In the column order of SessionRow.
RETURNING
    id, project_id, node_id, browser_id, pool_id, pool_name,
    shape, policy, extension_ids, proxy_id,
    profile_id, profile_version_id, save_profile, memory_places, network,
    name, timeout_seconds, start_url, tags, telemetry, state, end_reason, created_at, last_active_at, ended_at,
    invocation_id, for_login

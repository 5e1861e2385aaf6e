-- $1 pool, $2 session, $3 name, $4 start URL, $5 tags, $6 now, $7 telemetry, $8 browser,
-- $9 required time of the pool's last change, $record columns of the call's audit record.
-- The fast variant of take_now: the browser is known, and the audit record is stored in the same commit.
-- If any ticket waits, whether or not its node lives, no browser is leased.
WITH leased AS (
    UPDATE browsers b SET state = 'leased', session_id = $2
    FROM browser_pools p
    WHERE b.id = $8 AND b.state = 'idle' AND b.pool_id = $1 AND p.id = $1 AND p.deleted_at IS NULL
        AND p.updated_at = $9 AND p.generation = b.generation
        AND (
            NOT p.refresh_on_profile_update OR p.profile_id IS NULL
            OR b.profile_version_id IS NOT DISTINCT FROM (SELECT f.version_id FROM profiles f WHERE f.id = p.profile_id)
        )
        AND EXISTS (SELECT 1 FROM nodes n WHERE n.id = b.node_id AND n.state = 'serving')
        AND NOT EXISTS (SELECT 1 FROM pool_waiters w WHERE w.pool_id = $1 AND w.outcome IS NULL)
    RETURNING
        b.id, b.node_id, b.shape, b.policy, b.extension_ids, b.proxy_id, b.profile_id, b.profile_version_id, b.memory_places, b.network,
        p.project_id, p.name, p.timeout_seconds, p.start_url
), recorded AS (
    INSERT INTO audit_records (
        id, organization_id, at, auth_strategy, service, user_id, email, api_key_id, project_id,
        client_ip, domain, method, path, route, status, duration_ms, user_agent, request_id, count
    )
    SELECT $record FROM leased
    -- The caller has disconnected meanwhile, and that record exists already.
    ON CONFLICT (at, id) DO NOTHING
)
INSERT INTO sessions (
    id, project_id, node_id, browser_id, pool_id, pool_name,
    shape, policy, extension_ids, proxy_id,
    profile_id, profile_version_id, save_profile, memory_places, network,
    name, timeout_seconds, start_url, tags, telemetry, state, created_at, last_active_at
)
SELECT
    $2, project_id, node_id, id, $1, name,
    shape, policy, extension_ids, proxy_id, profile_id, profile_version_id, false, memory_places, network,
    $3, timeout_seconds, coalesce($4, start_url), $5, $7, 'active', $6, $6
FROM leased
-- In the column order of SessionRow.
RETURNING
    id, project_id, node_id, browser_id, pool_id, pool_name,
    shape, policy, extension_ids, proxy_id,
    profile_id, profile_version_id, save_profile, memory_places, network,
    name, timeout_seconds, start_url, tags, telemetry, state, end_reason, created_at, last_active_at, ended_at,
    invocation_id, for_login

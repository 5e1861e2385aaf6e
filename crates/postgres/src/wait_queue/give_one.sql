-- $1 pool, $2 now, $3 seconds without a heartbeat after which a node is silent, $4 node of the caller,
-- $5 seconds without a heartbeat after which the browsers of another node are not leased,
-- $6 nodes that cannot be reached: a grant could not be delivered to them, nor a browser of them handed out.
-- The caller has locked the wait queue of an existing pool. Heartbeats are compared with the database's clock.
-- A living node removes its tickets from the wait queue itself.
-- A browser of an earlier generation, or of an older version of the profile that the pool follows, is not leased.
-- Tickets of silent nodes come last, but are not left out: after an outage every node has been silent.
-- A ticket whose session name was taken meanwhile gets that outcome, and the browser stays idle for the next ticket.
WITH browser AS (
    SELECT * FROM browsers b WHERE b.pool_id = $1 AND b.state = 'idle' AND b.node_id <> ALL ($6)
        AND EXISTS (
            SELECT 1 FROM browser_pools p LEFT JOIN profiles f ON f.id = p.profile_id AND p.refresh_on_profile_update
            WHERE p.id = $1 AND p.generation = b.generation
                AND (f.id IS NULL OR b.profile_version_id IS NOT DISTINCT FROM f.version_id)
        )
        AND EXISTS (
            SELECT 1 FROM nodes n WHERE n.id = b.node_id AND n.state = 'serving'
                AND (n.id = $4 OR n.heartbeat_at > now() - make_interval(secs => $5))
        )
    ORDER BY b.created_at, b.id LIMIT 1 FOR UPDATE OF b SKIP LOCKED
), living AS (
    SELECT * FROM pool_waiters
    WHERE pool_id = $1 AND outcome IS NULL AND EXISTS (SELECT 1 FROM browser)
        AND node_id <> ALL ($6)
        AND node_id IN (SELECT id FROM nodes WHERE heartbeat_at > now() - make_interval(secs => $3))
    ORDER BY position LIMIT 1 FOR UPDATE SKIP LOCKED
), silent AS (
    SELECT * FROM pool_waiters
    WHERE pool_id = $1 AND outcome IS NULL AND expires_at > now() AND EXISTS (SELECT 1 FROM browser)
        AND node_id <> ALL ($6) AND NOT EXISTS (SELECT 1 FROM living)
    ORDER BY position LIMIT 1 FOR UPDATE SKIP LOCKED
), ticket AS (
    SELECT * FROM living UNION ALL SELECT * FROM silent
), granted AS (
    INSERT INTO sessions (
        id, project_id, node_id, browser_id, pool_id, pool_name,
        shape, policy, extension_ids, proxy_id,
        profile_id, profile_version_id, save_profile, memory_places, network,
        name, timeout_seconds, start_url, tags, telemetry, state, created_at, last_active_at
    )
    SELECT
        ticket.session_id, pool.project_id, browser.node_id, browser.id, pool.id, pool.name,
        browser.shape, browser.policy, browser.extension_ids, browser.proxy_id, browser.profile_id, browser.profile_version_id, false,
        browser.memory_places, browser.network,
        ticket.name, pool.timeout_seconds, coalesce(ticket.start_url, pool.start_url), ticket.tags, ticket.telemetry, 'active', $2, $2
    FROM browser, ticket, browser_pools pool WHERE pool.id = $1
    ON CONFLICT (project_id, name) WHERE state <> 'ended' DO NOTHING
    RETURNING id, browser_id
), leased AS (
    UPDATE browsers b SET state = 'leased', session_id = granted.id FROM granted WHERE b.id = granted.browser_id
)
UPDATE pool_waiters w SET outcome = CASE WHEN EXISTS (SELECT 1 FROM granted) THEN 'granted' ELSE 'name_taken' END
FROM ticket WHERE w.id = ticket.id
RETURNING w.id AS ticket, w.node_id AS node

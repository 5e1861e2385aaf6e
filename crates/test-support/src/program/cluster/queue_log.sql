-- Notes every ticket and every lease, with what the statement of a lease saw, in a schema of the tests. The triggers name no
-- column in their definitions, so that migrations can change the tables.
CREATE SCHEMA queue_log;
CREATE SEQUENCE queue_log.events;

-- A caller in the wait queue. A caller that enters again at its position has another session.
CREATE TABLE queue_log.waits (
    session_id uuid NOT NULL,
    pool_id uuid NOT NULL,
    node_id uuid NOT NULL,
    position bigint NOT NULL,
    entered bigint NOT NULL DEFAULT nextval('queue_log.events'),
    entered_by xid8 NOT NULL DEFAULT pg_current_xact_id(),
    ended bigint,
    -- What the statement saw that ended the wait without a lease.
    left_seeing pg_snapshot
);
CREATE INDEX ON queue_log.waits (session_id);

CREATE TABLE queue_log.leases (
    number bigint NOT NULL,
    session_id uuid NOT NULL,
    pool_id uuid NOT NULL,
    -- Null: the caller did not wait.
    position bigint,
    leased_by xid8 NOT NULL DEFAULT pg_current_xact_id(),
    seeing pg_snapshot NOT NULL,
    -- The nodes that had a heartbeat of the last 40 s. After 45 s the callers of a node come last.
    living uuid[] NOT NULL,
    leased_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Stable, so that it sees what the statement sees, whose trigger it is.
CREATE FUNCTION queue_log.look() RETURNS trigger LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM set_config('queue_log.seeing', pg_current_snapshot()::text, true);
    PERFORM set_config('queue_log.living', array_agg(id)::text, true) FROM public.nodes
        WHERE heartbeat_at > now() - interval '40 seconds';
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION queue_log.lease(session uuid, pool uuid, place bigint, event bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO queue_log.leases (number, session_id, pool_id, position, seeing, living)
    VALUES (event, session, pool, place, current_setting('queue_log.seeing')::pg_snapshot,
        coalesce(nullif(current_setting('queue_log.living'), ''), '{}')::uuid[])
$$;

CREATE FUNCTION queue_log.note_ticket() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    event bigint;
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO queue_log.waits (session_id, pool_id, node_id, position)
        VALUES (NEW.session_id, NEW.pool_id, NEW.node_id, NEW.position);
        RETURN NULL;
    END IF;
    event := nextval('queue_log.events');
    IF TG_OP = 'UPDATE' AND NEW.outcome = 'granted' THEN
        UPDATE queue_log.waits SET ended = event WHERE session_id = NEW.session_id;
        PERFORM queue_log.lease(NEW.session_id, NEW.pool_id, NEW.position, event);
    ELSE
        UPDATE queue_log.waits SET ended = event, left_seeing = current_setting('queue_log.seeing')::pg_snapshot
        WHERE session_id = OLD.session_id AND ended IS NULL;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION queue_log.note_session() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.pool_id IS NOT NULL AND NOT EXISTS (SELECT FROM queue_log.waits WHERE session_id = NEW.id) THEN
        PERFORM queue_log.lease(NEW.id, NEW.pool_id, NULL, nextval('queue_log.events'));
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER look BEFORE UPDATE OR DELETE ON public.pool_waiters FOR EACH ROW EXECUTE FUNCTION queue_log.look();
CREATE TRIGGER look BEFORE INSERT ON public.sessions FOR EACH ROW EXECUTE FUNCTION queue_log.look();
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON public.pool_waiters
    FOR EACH ROW EXECUTE FUNCTION queue_log.note_ticket();
CREATE TRIGGER note AFTER INSERT ON public.sessions FOR EACH ROW EXECUTE FUNCTION queue_log.note_session();

-- Each lease with each other caller on a living node that waited, as the statement of the lease saw it. A waiting caller was
-- overtaken if it came earlier and was served later, or left when the lease was known: one that left just then was locked.
CREATE VIEW queue_log.pairs AS
SELECT l.session_id, l.position, w.session_id AS waiting_session_id, w.position AS waiting_position,
    (l.position IS NULL OR w.position < l.position)
        AND (w.left_seeing IS NULL OR pg_visible_in_snapshot(l.leased_by, w.left_seeing)) AS is_overtaken,
    w.node_id AS waiting_node_id, l.leased_at
FROM queue_log.leases l JOIN queue_log.waits w
    ON w.pool_id = l.pool_id AND w.entered < l.number AND (w.ended IS NULL OR w.ended > l.number)
WHERE w.node_id = ANY (l.living) AND pg_visible_in_snapshot(w.entered_by, l.seeing);

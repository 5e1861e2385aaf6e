CREATE TABLE invocations (
    id uuid NOT NULL CONSTRAINT invocations_pkey PRIMARY KEY,
    project_id uuid NOT NULL CONSTRAINT invocations_project_id_fkey REFERENCES projects (id),
    deployment_id uuid NOT NULL CONSTRAINT invocations_deployment_id_fkey REFERENCES deployments (id),
    app_name text NOT NULL,
    version text NOT NULL,
    action_name text NOT NULL,
    payload text,
    output text,
    status text NOT NULL
        CONSTRAINT invocations_status_check CHECK (status IN ('queued', 'running', 'succeeded', 'failed')),
    status_reason text,
    node_id uuid CONSTRAINT invocations_node_id_fkey REFERENCES nodes (id),
    timeout_seconds integer NOT NULL,
    deadline timestamptz NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz,
    CONSTRAINT invocations_finished_check CHECK ((status IN ('succeeded', 'failed')) = (finished_at IS NOT NULL)),
    CONSTRAINT invocations_running_check CHECK (status <> 'running' OR node_id IS NOT NULL)
);
CREATE INDEX invocations_project_id_idx ON invocations (project_id, started_at DESC, id DESC);
CREATE INDEX invocations_deployment_id_idx ON invocations (deployment_id, started_at DESC);
CREATE INDEX invocations_node_id_idx ON invocations (node_id);
-- Most invocations have ended; the others are queried all the time.
CREATE INDEX invocations_queued_idx ON invocations (started_at, id) WHERE status = 'queued';
CREATE INDEX invocations_running_idx ON invocations (node_id) WHERE status = 'running';
CREATE INDEX invocations_unfinished_project_idx ON invocations (project_id) WHERE status IN ('queued', 'running');
CREATE INDEX invocations_unfinished_deployment_idx ON invocations (deployment_id) WHERE status IN ('queued', 'running');
CREATE INDEX invocations_deadline_idx ON invocations (deadline) WHERE status IN ('queued', 'running');

ALTER TABLE sessions ADD COLUMN invocation_id uuid CONSTRAINT sessions_invocation_id_fkey REFERENCES invocations (id);
CREATE INDEX sessions_invocation_id_idx ON sessions (invocation_id) WHERE invocation_id IS NOT NULL;

CREATE TABLE nodes (
    id uuid NOT NULL CONSTRAINT nodes_pkey PRIMARY KEY,
    host text NOT NULL,
    address text NOT NULL,
    started_at timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL
);

-- The output lines of builds and calls. The subject is a deployment or an invocation, whose ids are never equal.
CREATE TABLE app_lines (
    subject_id uuid NOT NULL,
    number bigint NOT NULL,
    at timestamptz NOT NULL,
    message text NOT NULL,
    CONSTRAINT app_lines_pkey PRIMARY KEY (subject_id, number)
);
CREATE INDEX app_lines_at_idx ON app_lines USING brin (at);

CREATE TABLE app_line_counts (
    subject_id uuid NOT NULL CONSTRAINT app_line_counts_pkey PRIMARY KEY,
    next_number bigint NOT NULL,
    bytes bigint NOT NULL,
    is_full boolean NOT NULL,
    last_at timestamptz NOT NULL
);
CREATE INDEX app_line_counts_last_at_idx ON app_line_counts (last_at);

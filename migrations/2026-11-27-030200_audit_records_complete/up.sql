-- The time until which any node has taken the records of all nodes to be complete. A node that was silent stores no
-- earlier records, because exports have passed them.
CREATE TABLE audit_records_complete (
    only_row boolean NOT NULL DEFAULT true CONSTRAINT audit_records_complete_pkey PRIMARY KEY
        CONSTRAINT audit_records_complete_only_row_check CHECK (only_row),
    until timestamptz NOT NULL
);
INSERT INTO audit_records_complete (until) VALUES ('epoch');
-- When the mark was stored, by the database's clock.
ALTER TABLE audit_records_marks ADD COLUMN marked_at timestamptz NOT NULL DEFAULT now();

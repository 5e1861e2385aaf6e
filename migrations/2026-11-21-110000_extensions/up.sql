CREATE TABLE extensions (
    id uuid NOT NULL CONSTRAINT extensions_pkey PRIMARY KEY,
    project_id uuid NOT NULL CONSTRAINT extensions_project_id_fkey REFERENCES projects (id),
    name text COLLATE name_ci,
    size_bytes bigint NOT NULL CONSTRAINT extensions_size_bytes_check CHECK (size_bytes >= 0),
    checksum text NOT NULL,
    created_at timestamptz NOT NULL,
    last_used_at timestamptz
);
CREATE INDEX extensions_project_id_idx ON extensions (project_id, created_at DESC, id DESC);
CREATE UNIQUE INDEX extensions_name_key ON extensions (project_id, name);

-- The extensions in the order in which they are loaded. Sessions and browsers store the ids with which they were
-- started, also of deleted extensions. An extension of a pool is not deleted, because storing a pool locks the
-- extension's row.
ALTER TABLE browser_pools ADD COLUMN extension_ids uuid[] NOT NULL DEFAULT '{}';
ALTER TABLE sessions ADD COLUMN extension_ids uuid[] NOT NULL DEFAULT '{}';
ALTER TABLE browsers ADD COLUMN extension_ids uuid[] NOT NULL DEFAULT '{}';
CREATE INDEX browser_pools_extension_ids_idx ON browser_pools USING gin (extension_ids) WHERE deleted_at IS NULL;

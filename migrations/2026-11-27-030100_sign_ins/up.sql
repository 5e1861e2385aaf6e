-- The sign-ins to the web interface, so that every node accepts them and a sign-out ends them everywhere.
CREATE TABLE sign_ins (
    -- SHA-256 of the cookie's value, which is stored nowhere.
    cookie_hash bytea NOT NULL CONSTRAINT sign_ins_pkey PRIMARY KEY,
    api_key_id uuid NOT NULL CONSTRAINT sign_ins_api_key_id_fkey REFERENCES api_keys (id) ON DELETE CASCADE,
    csrf_token text NOT NULL,
    started_at timestamptz NOT NULL,
    last_used_at timestamptz NOT NULL
);
CREATE INDEX sign_ins_api_key_id_idx ON sign_ins (api_key_id);

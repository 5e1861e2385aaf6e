CREATE TABLE profiles (
    id uuid NOT NULL CONSTRAINT profiles_pkey PRIMARY KEY,
    -- As callers write it, for those who look for a part of it.
    id_text text NOT NULL,
    organization_id uuid NOT NULL CONSTRAINT profiles_organization_id_fkey REFERENCES organizations (id),
    -- None: from the time before projects; made by an import only.
    project_id uuid CONSTRAINT profiles_project_id_fkey REFERENCES projects (id),
    name text COLLATE name_ci,
    -- The current one; none if nothing was ever saved.
    version_id uuid,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    last_used_at timestamptz,
    -- Sessions remember the profile that they were started with.
    deleted_at timestamptz
);
CREATE INDEX profiles_project_id_idx ON profiles (project_id, created_at DESC, id DESC) WHERE deleted_at IS NULL;
CREATE INDEX profiles_organization_id_idx ON profiles (organization_id, created_at DESC, id DESC)
    WHERE deleted_at IS NULL AND project_id IS NULL;
CREATE INDEX profiles_deleted_at_idx ON profiles (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE UNIQUE INDEX profiles_name_key ON profiles (project_id, name) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX profiles_legacy_name_key ON profiles (organization_id, name)
    WHERE deleted_at IS NULL AND project_id IS NULL;

-- Each is whole: an archive of user data, whose bytes lie elsewhere.
CREATE TABLE profile_versions (
    id uuid NOT NULL CONSTRAINT profile_versions_pkey PRIMARY KEY,
    profile_id uuid NOT NULL CONSTRAINT profile_versions_profile_id_fkey REFERENCES profiles (id),
    -- No reference: what a session saved outlives it.
    session_id uuid NOT NULL,
    -- From which version that session was started. It may be gone.
    based_on uuid,
    -- What the bytes are sealed with, itself sealed under a master key that is not in this database; the key's id stands in bytes 2 to 9.
    sealed_key bytea NOT NULL,
    created_at timestamptz NOT NULL,
    -- Since when it is not the current one any more, and whether whoever replaced it had not started from it.
    replaced_at timestamptz,
    replaced_unseen boolean NOT NULL DEFAULT false
);
CREATE INDEX profile_versions_profile_id_idx ON profile_versions (profile_id);
CREATE INDEX profile_versions_replaced_at_idx ON profile_versions (replaced_at) WHERE replaced_at IS NOT NULL;
ALTER TABLE profiles ADD CONSTRAINT profiles_version_id_fkey FOREIGN KEY (version_id) REFERENCES profile_versions (id);
CREATE INDEX profiles_version_id_idx ON profiles (version_id) WHERE version_id IS NOT NULL;

-- What a browser was started with, and whether what it has at its end is to be saved. Pools hold on to what they name, by a lock on
-- the profile's row while they are stored.
ALTER TABLE browser_pools ADD COLUMN profile_id uuid;
ALTER TABLE browser_pools ADD COLUMN profile_version_id uuid;
ALTER TABLE browser_pools ADD COLUMN save_profile boolean NOT NULL DEFAULT false;
ALTER TABLE browser_pools ADD COLUMN refresh_on_profile_update boolean NOT NULL DEFAULT false;
ALTER TABLE sessions ADD COLUMN profile_id uuid;
ALTER TABLE sessions ADD COLUMN profile_version_id uuid;
ALTER TABLE sessions ADD COLUMN save_profile boolean NOT NULL DEFAULT false;
ALTER TABLE browsers ADD COLUMN profile_id uuid;
ALTER TABLE browsers ADD COLUMN profile_version_id uuid;
ALTER TABLE browsers ADD COLUMN save_profile boolean NOT NULL DEFAULT false;
CREATE INDEX browser_pools_profile_id_idx ON browser_pools (profile_id) WHERE deleted_at IS NULL AND profile_id IS NOT NULL;

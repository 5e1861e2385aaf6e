CREATE TABLE profiles (
    id uuid NOT NULL CONSTRAINT profiles_pkey PRIMARY KEY,
    -- The id in the API's format, for searches of a part of it.
    id_text text NOT NULL,
    organization_id uuid NOT NULL CONSTRAINT profiles_organization_id_fkey REFERENCES organizations (id),
    -- Null for profiles from the time before projects, which only an import creates.
    project_id uuid CONSTRAINT profiles_project_id_fkey REFERENCES projects (id),
    name text COLLATE name_ci,
    -- The current version; null if nothing was ever saved.
    version_id uuid,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    last_used_at timestamptz,
    -- A deleted profile keeps its row for a time, because sessions refer to it.
    deleted_at timestamptz
);
CREATE INDEX profiles_project_id_idx ON profiles (project_id, created_at DESC, id DESC) WHERE deleted_at IS NULL;
CREATE INDEX profiles_organization_id_idx ON profiles (organization_id, created_at DESC, id DESC)
    WHERE deleted_at IS NULL AND project_id IS NULL;
CREATE INDEX profiles_deleted_at_idx ON profiles (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE UNIQUE INDEX profiles_name_key ON profiles (project_id, name) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX profiles_legacy_name_key ON profiles (organization_id, name)
    WHERE deleted_at IS NULL AND project_id IS NULL;

-- Each version is a complete archive of user data. The archives are in the blob store.
CREATE TABLE profile_versions (
    id uuid NOT NULL CONSTRAINT profile_versions_pkey PRIMARY KEY,
    profile_id uuid NOT NULL CONSTRAINT profile_versions_profile_id_fkey REFERENCES profiles (id),
    -- No foreign key: a version is kept after the session that saved it.
    session_id uuid NOT NULL,
    -- The version with which that session was started, which may be deleted.
    based_on uuid,
    -- The key of the archive, sealed with a master key that is not in this database; bytes 2 to 9 are the master key's
    -- id.
    sealed_key bytea NOT NULL,
    created_at timestamptz NOT NULL,
    -- The time at which another version became the current one, and true if that version was not based on this one.
    replaced_at timestamptz,
    replaced_unseen boolean NOT NULL DEFAULT false
);
CREATE INDEX profile_versions_profile_id_idx ON profile_versions (profile_id);
CREATE INDEX profile_versions_replaced_at_idx ON profile_versions (replaced_at) WHERE replaced_at IS NOT NULL;
ALTER TABLE profiles ADD CONSTRAINT profiles_version_id_fkey FOREIGN KEY (version_id) REFERENCES profile_versions (id);
CREATE INDEX profiles_version_id_idx ON profiles (version_id) WHERE version_id IS NOT NULL;

-- The profile with which a browser is started, and true if its state is saved at its end. A profile of a pool is not
-- deleted, because storing a pool locks the profile's row.
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

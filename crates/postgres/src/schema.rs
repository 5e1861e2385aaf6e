//! The tables as the migrations make them; a test compares the two.

diesel::table! {
    organizations (id) {
        id -> Uuid,
        name -> Text,
        max_concurrent_sessions -> Nullable<Int4>,
        max_pooled_sessions -> Nullable<Int4>,
        max_concurrent_invocations -> Nullable<Int4>,
        default_project_max_concurrent_sessions -> Nullable<Int4>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    users (id) {
        id -> Uuid,
        organization_id -> Uuid,
        email -> Text,
        name -> Nullable<Text>,
    }
}

diesel::table! {
    projects (id) {
        id -> Uuid,
        organization_id -> Uuid,
        name -> Text,
        is_default -> Bool,
        status -> Text,
        max_concurrent_sessions -> Nullable<Int4>,
        max_pooled_sessions -> Nullable<Int4>,
        max_concurrent_invocations -> Nullable<Int4>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        deleted_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    api_keys (id) {
        id -> Uuid,
        organization_id -> Uuid,
        project_id -> Nullable<Uuid>,
        name -> Text,
        secret_sha256 -> Bytea,
        last4 -> Text,
        created_by -> Uuid,
        created_at -> Timestamptz,
        expires_at -> Nullable<Timestamptz>,
        deleted_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    audit_records (id) {
        id -> Uuid,
        organization_id -> Uuid,
        at -> Timestamptz,
        auth_strategy -> Text,
        service -> Text,
        user_id -> Text,
        email -> Text,
        api_key_id -> Nullable<Uuid>,
        project_id -> Nullable<Uuid>,
        client_ip -> Text,
        domain -> Text,
        method -> Text,
        path -> Text,
        route -> Text,
        status -> Int4,
        duration_ms -> Int8,
        user_agent -> Text,
    }
}

diesel::table! {
    nodes (id) {
        id -> Uuid,
        host -> Text,
        address -> Text,
        started_at -> Timestamptz,
        heartbeat_at -> Timestamptz,
    }
}

diesel::table! {
    browser_pools (id) {
        id -> Uuid,
        project_id -> Uuid,
        name -> Nullable<Text>,
        size -> Int4,
        fill_rate_per_minute -> Int4,
        timeout_seconds -> Int4,
        headless -> Bool,
        stealth -> Bool,
        kiosk_mode -> Bool,
        viewport_width -> Int4,
        viewport_height -> Int4,
        viewport_refresh_rate -> Int4,
        policy -> Nullable<Json>,
        start_url -> Nullable<Text>,
        allowance -> Int4,
        growth_since -> Timestamptz,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        deleted_at -> Nullable<Timestamptz>,
        lease_node_id -> Nullable<Uuid>,
        lease_until -> Nullable<Timestamptz>,
        lease_fence -> Int8,
        extension_ids -> Array<Uuid>,
        proxy_id -> Nullable<Uuid>,
        profile_id -> Nullable<Uuid>,
        profile_version_id -> Nullable<Uuid>,
        save_profile -> Bool,
        refresh_on_profile_update -> Bool,
        telemetry -> Nullable<Array<Text>>,
    }
}

diesel::table! {
    sessions (id) {
        id -> Uuid,
        project_id -> Uuid,
        node_id -> Uuid,
        browser_id -> Nullable<Uuid>,
        pool_id -> Nullable<Uuid>,
        pool_name -> Nullable<Text>,
        headless -> Bool,
        stealth -> Bool,
        kiosk_mode -> Bool,
        viewport_width -> Int4,
        viewport_height -> Int4,
        viewport_refresh_rate -> Int4,
        policy -> Nullable<Json>,
        name -> Nullable<Text>,
        timeout_seconds -> Int4,
        start_url -> Nullable<Text>,
        tags -> Jsonb,
        state -> Text,
        end_reason -> Nullable<Text>,
        created_at -> Timestamptz,
        last_active_at -> Timestamptz,
        ended_at -> Nullable<Timestamptz>,
        extension_ids -> Array<Uuid>,
        proxy_id -> Nullable<Uuid>,
        profile_id -> Nullable<Uuid>,
        profile_version_id -> Nullable<Uuid>,
        save_profile -> Bool,
        telemetry -> Nullable<Array<Text>>,
    }
}

diesel::table! {
    browsers (id) {
        id -> Uuid,
        node_id -> Uuid,
        pool_id -> Nullable<Uuid>,
        headless -> Bool,
        stealth -> Bool,
        kiosk_mode -> Bool,
        viewport_width -> Int4,
        viewport_height -> Int4,
        viewport_refresh_rate -> Int4,
        policy -> Nullable<Json>,
        state -> Text,
        session_id -> Nullable<Uuid>,
        created_at -> Timestamptz,
        extension_ids -> Array<Uuid>,
        proxy_id -> Nullable<Uuid>,
        profile_id -> Nullable<Uuid>,
        profile_version_id -> Nullable<Uuid>,
        save_profile -> Bool,
    }
}

diesel::table! {
    pool_waiters (id) {
        id -> Uuid,
        pool_id -> Uuid,
        node_id -> Uuid,
        position -> Int8,
        session_id -> Uuid,
        name -> Nullable<Text>,
        start_url -> Nullable<Text>,
        tags -> Jsonb,
        created_at -> Timestamptz,
        expires_at -> Timestamptz,
        outcome -> Nullable<Text>,
        telemetry -> Nullable<Array<Text>>,
    }
}

diesel::table! {
    extensions (id) {
        id -> Uuid,
        project_id -> Uuid,
        name -> Nullable<Text>,
        size_bytes -> Int8,
        checksum -> Text,
        created_at -> Timestamptz,
        last_used_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    telemetry_counts (session_id) {
        session_id -> Uuid,
        last_seq -> Int8,
        last_at -> Timestamptz,
        agent_seq -> Int8,
        last_batch -> Uuid,
    }
}

diesel::table! {
    telemetry_events (session_id, at, seq) {
        session_id -> Uuid,
        seq -> Int8,
        at -> Timestamptz,
        category -> Text,
        body -> Text,
    }
}

diesel::joinable!(api_keys -> projects (project_id));
diesel::joinable!(projects -> organizations (organization_id));
diesel::joinable!(sessions -> projects (project_id));
diesel::joinable!(browser_pools -> projects (project_id));
diesel::table! {
    proxies (id) {
        id -> Uuid,
        project_id -> Uuid,
        name -> Nullable<Text>,
        #[sql_name = "type"]
        type_ -> Text,
        protocol -> Text,
        host -> Text,
        port -> Int4,
        username -> Nullable<Text>,
        sealed_password -> Nullable<Bytea>,
        bypass_hosts -> Array<Text>,
        status -> Text,
        last_checked -> Nullable<Timestamptz>,
        ip_address -> Nullable<Text>,
        check_taken_at -> Timestamptz,
        created_at -> Timestamptz,
        deleted_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    profiles (id) {
        id -> Uuid,
        id_text -> Text,
        organization_id -> Uuid,
        project_id -> Nullable<Uuid>,
        name -> Nullable<Text>,
        version_id -> Nullable<Uuid>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        last_used_at -> Nullable<Timestamptz>,
        deleted_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    profile_versions (id) {
        id -> Uuid,
        profile_id -> Uuid,
        session_id -> Uuid,
        based_on -> Nullable<Uuid>,
        sealed_key -> Bytea,
        created_at -> Timestamptz,
        replaced_at -> Nullable<Timestamptz>,
        replaced_unseen -> Bool,
    }
}

diesel::table! {
    credentials (id) {
        id -> Uuid,
        project_id -> Uuid,
        name -> Text,
        domain -> Text,
        sso_provider -> Nullable<Text>,
        sealed_totp -> Nullable<Bytea>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    credential_values (credential_id, name) {
        credential_id -> Uuid,
        name -> Text,
        sealed -> Bytea,
    }
}

diesel::table! {
    credential_providers (id) {
        id -> Uuid,
        organization_id -> Uuid,
        name -> Text,
        #[sql_name = "type"]
        type_ -> Text,
        server_url -> Nullable<Text>,
        vault -> Nullable<Text>,
        sealed_token -> Bytea,
        cache_ttl_seconds -> Int4,
        enabled -> Bool,
        priority -> Int4,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::allow_tables_to_appear_in_same_query!(
    organizations,
    users,
    projects,
    api_keys,
    nodes,
    browser_pools,
    sessions,
    browsers,
    pool_waiters,
    extensions,
    proxies,
    profiles,
    profile_versions,
    credentials,
    credential_values,
    credential_providers
);

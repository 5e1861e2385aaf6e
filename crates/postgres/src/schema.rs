//! The tables as the migrations create them. A test compares the two.

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
        for_deployment -> Bool,
        policy -> Nullable<Jsonb>,
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
        request_id -> Text,
        count -> Int8,
    }
}

diesel::table! {
    audit_records_marks (node_id) {
        node_id -> Uuid,
        whole_until -> Timestamptz,
        marked_at -> Timestamptz,
    }
}

diesel::table! {
    audit_records_complete (only_row) {
        only_row -> Bool,
        until -> Timestamptz,
    }
}

diesel::table! {
    audit_records_recovered (id) {
        id -> Uuid,
        at -> Timestamptz,
    }
}

diesel::table! {
    audit_records_pending (id) {
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
        request_id -> Text,
        node_id -> Uuid,
        run_id -> Uuid,
        count -> Int8,
    }
}

diesel::table! {
    blob_stores (database_id) {
        database_id -> Uuid,
        is_only -> Bool,
        store_id -> Nullable<Uuid>,
        location -> Nullable<Text>,
    }
}

diesel::table! {
    nodes (id) {
        id -> Uuid,
        host -> Text,
        address -> Text,
        started_at -> Timestamptz,
        heartbeat_at -> Timestamptz,
        epoch -> Int8,
        state -> Text,
        cluster_address -> Nullable<Text>,
        fingerprint -> Nullable<Bytea>,
        max_sessions -> Nullable<Int4>,
        memory_mib -> Nullable<Int8>,
        labels -> Jsonb,
        version -> Text,
        drain_ends_at -> Nullable<Timestamptz>,
        limits_sessions -> Bool,
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
        generation -> Int8,
        network -> Nullable<Jsonb>,
        memory_places -> Int4,
        blocked_reason -> Nullable<Text>,
        shape -> Jsonb,
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
        invocation_id -> Nullable<Uuid>,
        for_login -> Bool,
        network -> Nullable<Jsonb>,
        memory_places -> Int4,
        shape -> Jsonb,
    }
}

diesel::table! {
    browsers (id) {
        id -> Uuid,
        node_id -> Uuid,
        pool_id -> Nullable<Uuid>,
        policy -> Nullable<Json>,
        state -> Text,
        session_id -> Nullable<Uuid>,
        created_at -> Timestamptz,
        extension_ids -> Array<Uuid>,
        proxy_id -> Nullable<Uuid>,
        profile_id -> Nullable<Uuid>,
        profile_version_id -> Nullable<Uuid>,
        save_profile -> Bool,
        generation -> Int8,
        network -> Nullable<Jsonb>,
        memory_places -> Int4,
        shape -> Jsonb,
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
        bytes -> Int8,
        untold -> Int8,
        storage_limit -> Nullable<Text>,
        told_at -> Timestamptz,
    }
}

diesel::table! {
    stored_bytes (project_id, node_id, day_at, kind) {
        project_id -> Uuid,
        node_id -> Uuid,
        day_at -> Timestamptz,
        kind -> Text,
        bytes -> Int8,
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

diesel::table! {
    session_ignored_fields (session_id) {
        session_id -> Uuid,
        fields -> Array<Text>,
    }
}

diesel::joinable!(api_keys -> projects (project_id));
diesel::joinable!(projects -> organizations (organization_id));
diesel::joinable!(sessions -> projects (project_id));
diesel::joinable!(browser_pools -> projects (project_id));
diesel::table! {
    replays (id) {
        id -> Uuid,
        session_id -> Uuid,
        started_at -> Timestamptz,
        finished_at -> Nullable<Timestamptz>,
        state -> Text,
        size_bytes -> Int8,
        detail -> Nullable<Text>,
    }
}

diesel::joinable!(replays -> sessions (session_id));
diesel::table! {
    proxies (id) {
        id -> Uuid,
        project_id -> Uuid,
        name -> Nullable<Text>,
        #[sql_name = "type"]
        type_ -> Text,
        protocol -> Text,
        host -> Nullable<Text>,
        port -> Nullable<Int4>,
        username -> Nullable<Text>,
        sealed_password -> Nullable<Bytea>,
        bypass_hosts -> Array<Text>,
        status -> Text,
        last_checked -> Nullable<Timestamptz>,
        ip_address -> Nullable<Text>,
        check_taken_at -> Timestamptz,
        created_at -> Timestamptz,
        deleted_at -> Nullable<Timestamptz>,
        exit -> Nullable<Jsonb>,
        failure -> Nullable<Text>,
        ca_bundle -> Nullable<Text>,
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
        totp_algorithm -> Nullable<Text>,
        totp_digits -> Nullable<Int4>,
        totp_period_seconds -> Nullable<Int4>,
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
        project_ids -> Array<Uuid>,
        is_onepassword -> Bool,
    }
}

diesel::table! {
    audit_destinations (id) {
        id -> Uuid,
        organization_id -> Uuid,
        bucket -> Text,
        prefix -> Text,
        region -> Text,
        kms_key_id -> Nullable<Text>,
        status -> Text,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        exported_at -> Nullable<Timestamptz>,
        exported_id -> Nullable<Uuid>,
        planned_at -> Nullable<Timestamptz>,
        planned_id -> Nullable<Uuid>,
        claimed_by -> Nullable<Uuid>,
        claimed_until -> Nullable<Timestamptz>,
        consecutive_failures -> Int4,
        last_error -> Nullable<Text>,
        last_error_at -> Nullable<Timestamptz>,
        last_success_at -> Nullable<Timestamptz>,
        next_attempt_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    telemetry_destinations (id) {
        id -> Uuid,
        organization_id -> Uuid,
        name -> Text,
        description -> Nullable<Text>,
        endpoint -> Text,
        header_names -> Array<Text>,
        sealed_headers -> Bytea,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        consecutive_failures -> Int4,
        last_error -> Nullable<Text>,
        last_error_at -> Nullable<Timestamptz>,
        last_export_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    telemetry_exports (session_id) {
        session_id -> Uuid,
        exported_seq -> Int8,
    }
}

diesel::table! {
    deployments (id) {
        id -> Uuid,
        project_id -> Uuid,
        status -> Text,
        status_reason -> Nullable<Text>,
        region -> Text,
        version -> Text,
        force -> Bool,
        entrypoint -> Text,
        source_url -> Nullable<Text>,
        source_ref -> Nullable<Text>,
        source_path -> Nullable<Text>,
        source_checksum -> Nullable<Text>,
        env_names -> Array<Text>,
        api_key_id -> Uuid,
        artifact -> Nullable<Text>,
        lease_holder -> Nullable<Uuid>,
        lease_number -> Nullable<Int4>,
        lease_expires_at -> Nullable<Timestamptz>,
        begun_at -> Nullable<Timestamptz>,
        used_at -> Timestamptz,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    deployment_secrets (deployment_id, kind, name) {
        deployment_id -> Uuid,
        kind -> Text,
        name -> Text,
        sealed -> Bytea,
    }
}

diesel::table! {
    app_versions (id) {
        id -> Uuid,
        project_id -> Uuid,
        deployment_id -> Uuid,
        app_name -> Text,
        version -> Text,
        region -> Text,
        actions -> Array<Text>,
        live -> Bool,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    invocations (id) {
        id -> Uuid,
        project_id -> Uuid,
        deployment_id -> Uuid,
        app_name -> Text,
        version -> Text,
        action_name -> Text,
        payload -> Nullable<Text>,
        output -> Nullable<Text>,
        status -> Text,
        status_reason -> Nullable<Text>,
        node_id -> Nullable<Uuid>,
        timeout_seconds -> Int4,
        deadline -> Timestamptz,
        started_at -> Timestamptz,
        finished_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    app_lines (subject_id, number) {
        subject_id -> Uuid,
        number -> Int8,
        at -> Timestamptz,
        message -> Text,
    }
}

diesel::table! {
    app_line_counts (subject_id) {
        subject_id -> Uuid,
        next_number -> Int8,
        bytes -> Int8,
        is_full -> Bool,
        last_at -> Timestamptz,
    }
}

diesel::table! {
    auth_connections (id) {
        id -> Uuid,
        project_id -> Uuid,
        profile_id -> Uuid,
        proxy_id -> Nullable<Uuid>,
        domain -> Text,
        status -> Text,
        allowed_domains -> Array<Text>,
        auto_reauth -> Bool,
        health_checks -> Bool,
        health_check_interval_seconds -> Int4,
        record_session -> Bool,
        save_credentials -> Bool,
        credential_name -> Nullable<Text>,
        credential_provider -> Nullable<Text>,
        credential_path -> Nullable<Text>,
        login_url -> Nullable<Text>,
        needs -> Nullable<Array<Text>>,
        last_check_at -> Nullable<Timestamptz>,
        check_taken_at -> Timestamptz,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        organization_credential -> Bool,
    }
}

diesel::table! {
    auth_flows (id) {
        id -> Uuid,
        connection_id -> Uuid,
        kind -> Text,
        status -> Text,
        step -> Text,
        revision -> Int8,
        node_id -> Nullable<Uuid>,
        session_id -> Uuid,
        open -> Bool,
        details -> Json,
        submission -> Nullable<Bytea>,
        entered -> Nullable<Bytea>,
        handoff -> Nullable<Bytea>,
        page_key -> Nullable<Bytea>,
        expires_at -> Timestamptz,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    sign_ins (cookie_hash) {
        cookie_hash -> Bytea,
        api_key_id -> Uuid,
        csrf_token -> Text,
        started_at -> Timestamptz,
        last_used_at -> Timestamptz,
    }
}

diesel::table! {
    shared_secret (only_row) {
        only_row -> Bool,
        sealed -> Bytea,
    }
}

diesel::joinable!(app_versions -> deployments (deployment_id));
diesel::joinable!(invocations -> deployments (deployment_id));

diesel::joinable!(auth_connections -> projects (project_id));
diesel::joinable!(auth_connections -> profiles (profile_id));

/// Allows queries with both tables of a pair. Diesel's macro allows all pairs of its arguments, and each costs the build two
/// implementations of a trait: so only the pairs that queries have are listed.
macro_rules! appear_together {
    ($($table:ident: $($other:ident),+;)+) => {$(
        $(diesel::allow_tables_to_appear_in_same_query!($table, $other);)+
    )+};
}

appear_together! {
    api_keys: organizations, projects, users;
    app_versions: deployments;
    audit_records_marks: nodes;
    auth_connections: auth_flows, profiles, projects;
    auth_flows: nodes, sessions;
    browser_pools: browsers, pool_waiters, profiles, sessions;
    browsers: pool_waiters, sessions;
    deployments: invocations;
    invocations: projects;
    nodes: sessions, telemetry_counts, telemetry_exports;
    organizations: projects;
    profiles: projects;
    projects: users;
    replays: browsers, sessions;
    sessions: telemetry_counts, telemetry_exports;
    telemetry_counts: telemetry_exports;
}

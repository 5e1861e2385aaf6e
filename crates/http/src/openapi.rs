//! The description of the API, generated from the handlers.

use std::collections::HashMap;

use utoipa::{
    Modify, OpenApi,
    openapi::{
        self, RefOr,
        security::{Http, HttpAuthScheme, SecurityScheme},
    },
};

use crate::{
    api_key, audit, computer, credential, credential_provider, curl, extension, fs, operational, pool, process,
    profile, project, proxy, replay, script, session, session_log, telemetry,
};

#[derive(OpenApi)]
#[openapi(
    info(title = "Casement", description = "Cloud browsers on a host of your own.", license(name = "MIT OR Apache-2.0")),
    paths(
        session::create_browser,
        session::list_browsers,
        session::get_browser,
        session::update_browser,
        session::delete_browser,
        computer::capture_screenshot,
        computer::write_clipboard,
        computer::read_clipboard,
        computer::click_mouse,
        computer::move_mouse,
        computer::drag_mouse,
        computer::scroll,
        computer::press_key,
        computer::type_text,
        computer::get_mouse_position,
        computer::set_cursor,
        computer::batch,
        fs::list_files,
        fs::file_info,
        fs::read_file,
        fs::download_dir_zip,
        fs::write_file,
        fs::upload_files,
        fs::upload_zip,
        fs::set_file_permissions,
        fs::create_directory,
        fs::delete_directory,
        fs::delete_file,
        fs::move_path,
        fs::start_fs_watch,
        fs::stream_fs_events,
        fs::stop_fs_watch,
        replay::start_replay,
        replay::list_replays,
        replay::stop_replay,
        replay::download_replay,
        script::execute_script,
        process::execute_process,
        process::spawn_process,
        process::get_process_status,
        process::write_process_stdin,
        process::kill_process,
        process::resize_process,
        process::stream_process_output,
        session_log::stream_logs,
        telemetry::list_telemetry_events,
        telemetry::stream_telemetry,
        curl::curl,
        credential::create_credential,
        credential::list_credentials,
        credential::get_credential,
        credential::update_credential,
        credential::delete_credential,
        credential::get_totp_code,
        profile::create_profile,
        profile::list_profiles,
        profile::get_profile,
        profile::update_profile,
        profile::delete_profile,
        profile::download_profile,
        proxy::create_proxy,
        proxy::list_proxies,
        proxy::get_proxy,
        proxy::update_proxy,
        proxy::delete_proxy,
        proxy::check_proxy,
        extension::load_extensions,
        extension::upload_extension,
        extension::list_extensions,
        extension::download_extension,
        extension::get_extension,
        extension::delete_extension,
        extension::extension_from_web_store,
        pool::create_pool,
        pool::list_pools,
        pool::get_pool,
        pool::update_pool,
        pool::delete_pool,
        pool::acquire_browser,
        pool::flush_pool,
        pool::release_browser,
        api_key::create_api_key,
        api_key::list_api_keys,
        api_key::get_api_key,
        api_key::update_api_key,
        api_key::delete_api_key,
        api_key::rotate_api_key,
        credential_provider::create_credential_provider,
        credential_provider::list_credential_providers,
        credential_provider::get_credential_provider,
        credential_provider::update_credential_provider,
        credential_provider::delete_credential_provider,
        credential_provider::list_credential_provider_items,
        credential_provider::test_credential_provider,
        project::create_project,
        project::list_projects,
        project::get_project,
        project::update_project,
        project::delete_project,
        project::get_project_limits,
        project::update_project_limits,
        project::get_organization_limits,
        project::update_organization_limits,
        project::get_project_deprecated,
        project::delete_project_deprecated,
        audit::list_audit_records,
        audit::export_audit_chunk,
        operational::healthz,
        operational::readyz,
        operational::metrics,
        operational::description,
    ),
    security(("api_key" = [])),
    modifiers(&ApiKey, &OptionalBodies),
)]
struct Document;

/// The credential of every operation that does not say otherwise.
struct ApiKey;

impl Modify for ApiKey {
    fn modify(&self, document: &mut openapi::OpenApi) {
        let mut key = Http::new(HttpAuthScheme::Bearer);
        key.description = Some("An API key: `csk_…`".to_owned());
        document.components.get_or_insert_default().add_security_scheme("api_key", SecurityScheme::Http(key));
    }
}

/// No body means the same as `{}`, so only those with a field that must be given are required.
struct OptionalBodies;

impl Modify for OptionalBodies {
    fn modify(&self, document: &mut openapi::OpenApi) {
        for item in document.paths.paths.values_mut() {
            let operations = [&mut item.post, &mut item.patch, &mut item.delete];
            for operation in operations.into_iter().flatten() {
                let required = matches!(
                    operation.operation_id.as_deref(),
                    Some("create_pool" | "release_browser" | "create_project" | "create_api_key" | "update_api_key")
                );
                if let (false, Some(RefOr::T(body))) = (required, &mut operation.request_body) {
                    body.required = None;
                }
            }
        }
    }
}

/// The name of each operation, by its method and path.
pub(crate) fn operation_names() -> HashMap<(String, String), String> {
    let mut names = HashMap::new();
    for (path, item) in Document::openapi().paths.paths {
        let operations =
            [("GET", item.get), ("PUT", item.put), ("POST", item.post), ("PATCH", item.patch), ("DELETE", item.delete)];
        for (method, operation) in operations {
            if let Some(name) = operation.and_then(|operation| operation.operation_id) {
                names.insert((method.to_owned(), path.clone()), name);
            }
        }
    }
    names
}

/// The OpenAPI document, as indented JSON that ends in a line break.
///
/// # Panics
/// Never: the document is made of strings.
#[must_use]
pub fn openapi() -> String {
    let mut text = Document::openapi().to_pretty_json().unwrap_or_else(|_| unreachable!("strings become JSON"));
    text.push('\n');
    text
}

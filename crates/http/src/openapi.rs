//! The description of the API, generated from the handlers.

use std::collections::{BTreeMap, HashMap};

use utoipa::{
    Modify, OpenApi,
    openapi::{
        self, AllOfBuilder, ObjectBuilder, RefOr, Required, Schema,
        request_body::RequestBody,
        security::{Http, HttpAuthScheme, SecurityScheme},
    },
};

use crate::{
    api_key, audit, auth_connection, computer, credential, credential_provider, curl, deployment, extension, fs,
    invocation, operational, pool, process, profile, project, proxy, replay, script, session, session_log, telemetry,
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
        auth_connection::create_auth_connection,
        auth_connection::list_auth_connections,
        auth_connection::get_auth_connection,
        auth_connection::update_auth_connection,
        auth_connection::delete_auth_connection,
        auth_connection::login_auth_connection,
        auth_connection::submit_auth_connection,
        auth_connection::follow_auth_connection,
        auth_connection::list_auth_connection_timeline,
        credential::create_credential,
        credential::list_credentials,
        credential::get_credential,
        credential::update_credential,
        credential::delete_credential,
        credential::get_totp_code,
        deployment::create_deployment,
        deployment::list_deployments,
        deployment::get_deployment,
        deployment::stop_deployment,
        deployment::follow_deployment,
        deployment::list_apps,
        invocation::create_invocation,
        invocation::list_invocations,
        invocation::get_invocation,
        invocation::update_invocation,
        invocation::follow_invocation,
        invocation::list_invocation_browsers,
        invocation::delete_invocation_browsers,
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
    modifiers(&ApiKey, &RequiredBodies),
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

/// What an operation needs of a body that another one takes without it.
const ALSO_NEEDED: [(&str, &str); 2] = [("create_pool", "size"), ("update_profile", "name")];
/// These need one or another of their fields, which their schemas do not say.
const NEED_ANY: [&str; 2] = ["create_deployment", "submit_auth_connection"];

/// No body means the same as `{}`, so only those with a field that must be given are required.
struct RequiredBodies;

impl Modify for RequiredBodies {
    fn modify(&self, document: &mut openapi::OpenApi) {
        let schemas = &document.components.get_or_insert_default().schemas;
        for item in document.paths.paths.values_mut() {
            let operations = [&mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
            for operation in operations.into_iter().flatten() {
                let name = operation.operation_id.as_deref().unwrap_or_default();
                let Some(RefOr::T(body)) = &mut operation.request_body else { continue };
                for (_, field) in ALSO_NEEDED.iter().filter(|(of, _)| *of == name) {
                    also_needs(body, field);
                }
                let required = NEED_ANY.contains(&name) || schemas_of(body).any(|schema| is_needed(schema, schemas));
                body.required = required.then_some(Required::True);
            }
        }
    }
}

fn schemas_of(body: &mut RequestBody) -> impl Iterator<Item = &mut RefOr<Schema>> {
    body.content.values_mut().filter_map(|content| match content {
        RefOr::T(content) => content.schema.as_mut(),
        RefOr::Ref(_) => None,
    })
}

fn also_needs(body: &mut RequestBody, field: &str) {
    for schema in schemas_of(body) {
        let also = ObjectBuilder::new().required(field).build();
        *schema = RefOr::T(Schema::AllOf(AllOfBuilder::new().item(schema.clone()).item(also).build()));
    }
}

/// Whether a body of this schema must be sent: one that is no object of the schemas, or has a field that must be given.
fn is_needed(schema: &RefOr<Schema>, schemas: &BTreeMap<String, RefOr<Schema>>) -> bool {
    let RefOr::Ref(reference) = schema else { return true };
    let name = reference.ref_location.rsplit('/').next().unwrap_or_default();
    matches!(schemas.get(name), Some(RefOr::T(Schema::Object(object))) if !object.required.is_empty())
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

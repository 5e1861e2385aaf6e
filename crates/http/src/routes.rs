//! Which handler answers which path and method.

use std::collections::BTreeMap;

use actix_web::{
    HttpRequest, HttpResponse, Resource, Route, Scope,
    http::{
        Method,
        header::{self, HeaderValue},
    },
    web::{self, ServiceConfig},
};

use crate::{
    api_key, audit, auth_connection, computer, credential, credential_provider, curl, deployment,
    error::{ApiError, Code},
    extension, fs, invocation, login_page, operational, pool, process, profile, project, proxy, replay, script,
    session, session_log, telemetry, ui, vm,
};

/// All paths, by what they begin with: a request is compared with those alone that share its first segments, not with all of
/// more than a hundred patterns.
#[derive(Default)]
struct Routes(BTreeMap<String, Group>);

/// What shares the first segment of its path.
#[derive(Default)]
struct Group {
    /// With the rest of their paths.
    resources: Vec<Resource>,
    /// What goes on below a second segment that is a parameter, by that.
    below: BTreeMap<String, Vec<Resource>>,
}

impl Routes {
    /// The place of a pattern, and what is left of it there.
    fn place<'a>(&mut self, pattern: &'a str) -> (&mut Vec<Resource>, &'a str) {
        let next = |from: usize| pattern[from..].find('/').map_or(pattern.len(), |at| from + at);
        let first = next(1);
        let second = if first < pattern.len() { next(first + 1) } else { first };
        let group = self.0.entry(pattern[..first].to_owned()).or_default();
        let parameter = &pattern[first..second];
        if second < pattern.len() && parameter.starts_with("/{") {
            (group.below.entry(parameter.to_owned()).or_default(), &pattern[second..])
        } else {
            (&mut group.resources, &pattern[first..])
        }
    }

    /// Adds what answers this path by itself, whatever the method.
    fn whole<F, Args>(&mut self, pattern: &str, handler: F)
    where
        F: actix_web::Handler<Args>,
        Args: actix_web::FromRequest + 'static,
        F::Output: actix_web::Responder + 'static,
    {
        let (place, rest) = self.place(pattern);
        place.push(web::resource(rest).to(handler));
    }

    fn done(self, config: &mut ServiceConfig) {
        for (first, group) in self.0 {
            let gather = |scope: Scope, resources: Vec<Resource>| resources.into_iter().fold(scope, Scope::service);
            let scope = gather(web::scope(&first), group.resources);
            let below = |scope: Scope, (parameter, resources): (String, Vec<Resource>)| {
                scope.service(gather(web::scope(&parameter), resources))
            };
            config.service(group.below.into_iter().fold(scope, below));
        }
    }
}

/// A path with its methods; other methods are answered here.
struct Path {
    pattern: String,
    routes: Vec<Route>,
    allow: Vec<Method>,
    /// Whether its clients speak WebDriver.
    webdriver: bool,
}

fn path(pattern: &str) -> Path {
    Path { pattern: pattern.to_owned(), routes: Vec::new(), allow: vec![Method::OPTIONS], webdriver: false }
}

impl Path {
    fn on<F, Args>(mut self, method: Method, handler: F) -> Self
    where
        F: actix_web::Handler<Args>,
        Args: actix_web::FromRequest + 'static,
        F::Output: actix_web::Responder + 'static,
    {
        if method == Method::GET {
            // The server leaves the body out by itself.
            self.routes.push(web::head().to(handler.clone()));
            self.allow.push(Method::HEAD);
        }
        self.routes.push(Route::new().method(method.clone()).to(handler));
        self.allow.push(method);
        self
    }

    /// A GET without HEAD: of a stream or a WebSocket, or where the protocol has none.
    fn only_get<F, Args>(mut self, handler: F) -> Self
    where
        F: actix_web::Handler<Args>,
        Args: actix_web::FromRequest + 'static,
        F::Output: actix_web::Responder + 'static,
    {
        self.routes.push(web::get().to(handler));
        self.allow.push(Method::GET);
        self
    }

    fn of_webdriver(mut self) -> Self {
        self.webdriver = true;
        self
    }

    fn done(mut self, routes: &mut Routes) {
        self.allow.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        let allow = self.allow.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
        let allow = HeaderValue::from_str(&allow).unwrap_or_else(|_| unreachable!("methods are tokens"));
        let options = allow.clone();
        let options = move || {
            let allow = options.clone();
            async move { HttpResponse::NoContent().insert_header((header::ALLOW, allow)).finish() }
        };
        let webdriver = self.webdriver;
        let others = move |request: HttpRequest| {
            let allow = allow.clone();
            async move {
                let message = format!("{} is not possible here", request.method());
                let refusal = ApiError::new(Code::MethodNotAllowed, message).with_header(header::ALLOW, allow);
                Err::<HttpResponse, _>(if webdriver { refusal.for_webdriver() } else { refusal })
            }
        };
        let (place, rest) = routes.place(&self.pattern);
        let resource = self.routes.into_iter().fold(web::resource(rest), Resource::route);
        place.push(resource.route(web::method(Method::OPTIONS).to(options)).default_service(web::to(others)));
    }
}

/// An operation inside a session, under both of its paths.
fn inside(routes: &mut Routes, tail: &str, methods: impl Fn(Path) -> Path) {
    for session in ["/browsers/{id}", "/vm/{session_id}"] {
        methods(path(&format!("{session}/{tail}"))).done(routes);
    }
}

/// What no route matches.
pub(crate) async fn unknown() -> Result<HttpResponse, ApiError> {
    Err(ApiError::new(Code::RouteNotFound, "there is no such route"))
}

/// All routes.
pub(crate) fn all(config: &mut ServiceConfig) {
    let mut gathered = Routes::default();
    let routes = &mut gathered;
    path("/browsers").on(Method::GET, session::list_browsers).on(Method::POST, session::create_browser).done(routes);
    path("/browsers/{id_or_name}")
        .on(Method::GET, session::get_browser)
        .on(Method::PATCH, session::update_browser)
        .on(Method::DELETE, session::delete_browser)
        .done(routes);
    on_computer(routes);
    files(routes);
    inside(routes, "replays", |path| path.on(Method::GET, replay::list_replays).on(Method::POST, replay::start_replay));
    inside(routes, "replays/{replay_id}", |path| path.on(Method::GET, replay::download_replay));
    inside(routes, "replays/{replay_id}/stop", |path| path.on(Method::POST, replay::stop_replay));
    inside(routes, "playwright/execute", |path| path.on(Method::POST, script::execute_script));
    processes(routes);
    inside(routes, "extensions", |path| path.on(Method::POST, extension::load_extensions));
    path("/extensions")
        .on(Method::GET, extension::list_extensions)
        .on(Method::POST, extension::upload_extension)
        .done(routes);
    path("/extensions/from_chrome_store").on(Method::GET, extension::extension_from_web_store).done(routes);
    path("/extensions/{id_or_name}")
        .on(Method::GET, extension::download_extension)
        .on(Method::DELETE, extension::delete_extension)
        .done(routes);
    path("/extensions/{id_or_name}/metadata").on(Method::GET, extension::get_extension).done(routes);
    auth_connections(routes);
    credentials(routes);
    apps(routes);
    path("/profiles").on(Method::GET, profile::list_profiles).on(Method::POST, profile::create_profile).done(routes);
    path("/profiles/{id_or_name}")
        .on(Method::GET, profile::get_profile)
        .on(Method::PATCH, profile::update_profile)
        .on(Method::DELETE, profile::delete_profile)
        .done(routes);
    path("/profiles/{id_or_name}/download").on(Method::GET, profile::download_profile).done(routes);
    path("/proxies").on(Method::GET, proxy::list_proxies).on(Method::POST, proxy::create_proxy).done(routes);
    path("/proxies/{id}")
        .on(Method::GET, proxy::get_proxy)
        .on(Method::PATCH, proxy::update_proxy)
        .on(Method::DELETE, proxy::delete_proxy)
        .done(routes);
    path("/proxies/{id}/check").on(Method::POST, proxy::check_proxy).done(routes);
    path("/browser_pools").on(Method::GET, pool::list_pools).on(Method::POST, pool::create_pool).done(routes);
    path("/browser_pools/{id_or_name}")
        .on(Method::GET, pool::get_pool)
        .on(Method::PATCH, pool::update_pool)
        .on(Method::DELETE, pool::delete_pool)
        .done(routes);
    path("/browser_pools/{id_or_name}/acquire").on(Method::POST, pool::acquire_browser).done(routes);
    path("/browser_pools/{id_or_name}/flush").on(Method::POST, pool::flush_pool).done(routes);
    path("/browser_pools/{id_or_name}/release").on(Method::POST, pool::release_browser).done(routes);
    organization(routes);
    path("/audit-logs").on(Method::GET, audit::list_audit_records).done(routes);
    path("/audit-logs/export/chunk").on(Method::GET, audit::export_audit_chunk).done(routes);
    direct(routes);
    web_interface(routes);
    path("/healthz").on(Method::GET, operational::healthz).done(routes);
    path("/readyz").on(Method::GET, operational::readyz).done(routes);
    path("/metrics").on(Method::GET, operational::metrics).done(routes);
    path("/openapi.json").on(Method::GET, operational::description).done(routes);
    gathered.done(config);
}

/// What an organization's administrator sees.
fn organization(routes: &mut Routes) {
    path("/org/api_keys")
        .on(Method::GET, api_key::list_api_keys)
        .on(Method::POST, api_key::create_api_key)
        .done(routes);
    path("/org/api_keys/{id}")
        .on(Method::GET, api_key::get_api_key)
        .on(Method::PATCH, api_key::update_api_key)
        .on(Method::DELETE, api_key::delete_api_key)
        .done(routes);
    path("/org/api_keys/{id}/rotate").on(Method::POST, api_key::rotate_api_key).done(routes);
    path("/org/credential_providers")
        .on(Method::GET, credential_provider::list_credential_providers)
        .on(Method::POST, credential_provider::create_credential_provider)
        .done(routes);
    path("/org/credential_providers/{id}")
        .on(Method::GET, credential_provider::get_credential_provider)
        .on(Method::PATCH, credential_provider::update_credential_provider)
        .on(Method::DELETE, credential_provider::delete_credential_provider)
        .done(routes);
    path("/org/credential_providers/{id}/items")
        .on(Method::GET, credential_provider::list_credential_provider_items)
        .done(routes);
    path("/org/credential_providers/{id}/test")
        .on(Method::POST, credential_provider::test_credential_provider)
        .done(routes);
    path("/org/limits")
        .on(Method::GET, project::get_organization_limits)
        .on(Method::PATCH, project::update_organization_limits)
        .done(routes);
    path("/org/projects")
        .on(Method::GET, project::list_projects)
        .on(Method::POST, project::create_project)
        .done(routes);
    path("/org/projects/{id}")
        .on(Method::GET, project::get_project)
        .on(Method::PATCH, project::update_project)
        .on(Method::DELETE, project::delete_project)
        .done(routes);
    path("/org/projects/{id}/limits")
        .on(Method::GET, project::get_project_limits)
        .on(Method::PATCH, project::update_project_limits)
        .done(routes);
    #[expect(deprecated, reason = "callers of before still ask for them")]
    path("/projects/{id}")
        .on(Method::GET, project::get_project_deprecated)
        .on(Method::DELETE, project::delete_project_deprecated)
        .done(routes);
}

/// Files of a session.
fn files(routes: &mut Routes) {
    inside(routes, "fs/list_files", |path| path.on(Method::GET, fs::list_files));
    inside(routes, "fs/file_info", |path| path.on(Method::GET, fs::file_info));
    inside(routes, "fs/read_file", |path| path.on(Method::GET, fs::read_file));
    inside(routes, "fs/download_dir_zip", |path| path.on(Method::GET, fs::download_dir_zip));
    inside(routes, "fs/write_file", |path| path.on(Method::PUT, fs::write_file));
    inside(routes, "fs/upload", |path| path.on(Method::POST, fs::upload_files));
    inside(routes, "fs/upload_zip", |path| path.on(Method::POST, fs::upload_zip));
    inside(routes, "fs/set_file_permissions", |path| path.on(Method::PUT, fs::set_file_permissions));
    inside(routes, "fs/create_directory", |path| path.on(Method::PUT, fs::create_directory));
    inside(routes, "fs/delete_directory", |path| path.on(Method::PUT, fs::delete_directory));
    inside(routes, "fs/delete_file", |path| path.on(Method::PUT, fs::delete_file));
    inside(routes, "fs/move", |path| path.on(Method::PUT, fs::move_path));
    inside(routes, "fs/watch", |path| path.on(Method::POST, fs::start_fs_watch));
    inside(routes, "fs/watch/{watch_id}/events", |path| path.only_get(fs::stream_fs_events));
    inside(routes, "fs/watch/{watch_id}", |path| path.on(Method::DELETE, fs::stop_fs_watch));
}

/// Screen, mouse, keyboard and clipboard of a session.
fn on_computer(routes: &mut Routes) {
    inside(routes, "computer/screenshot", |path| path.on(Method::POST, computer::capture_screenshot));
    inside(routes, "computer/clipboard/write", |path| path.on(Method::POST, computer::write_clipboard));
    inside(routes, "computer/clipboard/read", |path| path.on(Method::POST, computer::read_clipboard));
    inside(routes, "computer/click_mouse", |path| path.on(Method::POST, computer::click_mouse));
    inside(routes, "computer/move_mouse", |path| path.on(Method::POST, computer::move_mouse));
    inside(routes, "computer/drag_mouse", |path| path.on(Method::POST, computer::drag_mouse));
    inside(routes, "computer/scroll", |path| path.on(Method::POST, computer::scroll));
    inside(routes, "computer/press_key", |path| path.on(Method::POST, computer::press_key));
    inside(routes, "computer/type", |path| path.on(Method::POST, computer::type_text));
    inside(routes, "computer/get_mouse_position", |path| path.on(Method::POST, computer::get_mouse_position));
    inside(routes, "computer/cursor", |path| path.on(Method::POST, computer::set_cursor));
    inside(routes, "computer/batch", |path| path.on(Method::POST, computer::batch));
}

/// Programs, logs and requests of a session.
fn apps(routes: &mut Routes) {
    path("/apps").on(Method::GET, deployment::list_apps).done(routes);
    path("/deployments")
        .on(Method::GET, deployment::list_deployments)
        .on(Method::POST, deployment::create_deployment)
        .done(routes);
    path("/deployments/{id}")
        .on(Method::GET, deployment::get_deployment)
        .on(Method::DELETE, deployment::stop_deployment)
        .done(routes);
    path("/deployments/{id}/events").only_get(deployment::follow_deployment).done(routes);
    path("/invocations")
        .on(Method::GET, invocation::list_invocations)
        .on(Method::POST, invocation::create_invocation)
        .done(routes);
    path("/invocations/{id}")
        .on(Method::GET, invocation::get_invocation)
        .on(Method::PATCH, invocation::update_invocation)
        .done(routes);
    path("/invocations/{id}/events").only_get(invocation::follow_invocation).done(routes);
    path("/invocations/{id}/browsers")
        .on(Method::GET, invocation::list_invocation_browsers)
        .on(Method::DELETE, invocation::delete_invocation_browsers)
        .done(routes);
}

/// What keeps profiles logged in.
fn auth_connections(routes: &mut Routes) {
    path("/auth/connections")
        .on(Method::GET, auth_connection::list_auth_connections)
        .on(Method::POST, auth_connection::create_auth_connection)
        .done(routes);
    path("/auth/connections/{id}")
        .on(Method::GET, auth_connection::get_auth_connection)
        .on(Method::PATCH, auth_connection::update_auth_connection)
        .on(Method::DELETE, auth_connection::delete_auth_connection)
        .done(routes);
    path("/auth/connections/{id}/login").on(Method::POST, auth_connection::login_auth_connection).done(routes);
    path("/auth/connections/{id}/submit").on(Method::POST, auth_connection::submit_auth_connection).done(routes);
    path("/auth/connections/{id}/events").only_get(auth_connection::follow_auth_connection).done(routes);
    path("/auth/connections/{id}/timeline")
        .on(Method::GET, auth_connection::list_auth_connection_timeline)
        .done(routes);
}

/// What logs in.
fn credentials(routes: &mut Routes) {
    path("/credentials")
        .on(Method::GET, credential::list_credentials)
        .on(Method::POST, credential::create_credential)
        .done(routes);
    path("/credentials/{id_or_name}")
        .on(Method::GET, credential::get_credential)
        .on(Method::PATCH, credential::update_credential)
        .on(Method::DELETE, credential::delete_credential)
        .done(routes);
    path("/credentials/{id_or_name}/totp-code").on(Method::GET, credential::get_totp_code).done(routes);
}

/// Programs, logs and requests of a session.
fn processes(routes: &mut Routes) {
    inside(routes, "process/exec", |path| path.on(Method::POST, process::execute_process));
    inside(routes, "process/spawn", |path| path.on(Method::POST, process::spawn_process));
    inside(routes, "process/{process_id}/status", |path| path.on(Method::GET, process::get_process_status));
    inside(routes, "process/{process_id}/stdin", |path| path.on(Method::POST, process::write_process_stdin));
    inside(routes, "process/{process_id}/kill", |path| path.on(Method::POST, process::kill_process));
    inside(routes, "process/{process_id}/resize", |path| path.on(Method::POST, process::resize_process));
    inside(routes, "process/{process_id}/stdout/stream", |path| path.only_get(process::stream_process_output));
    path("/browsers/{id}/telemetry/events").on(Method::GET, telemetry::list_telemetry_events).done(routes);
    inside(routes, "telemetry/stream", |path| path.only_get(telemetry::stream_telemetry));
    inside(routes, "logs/stream", |path| path.only_get(session_log::stream_logs));
    inside(routes, "curl", |path| path.on(Method::POST, curl::curl));
    // Every method is the target's to answer, OPTIONS too.
    routes.whole("/vm/{session_id}/curl/raw", curl::raw);
}

/// Pages for people, and what these ask for: a few calls of the API, shown a cookie instead of a key. Nothing else is called so.
fn web_interface(routes: &mut Routes) {
    path("/").on(Method::GET, ui::home).done(routes);
    path("/ui").on(Method::GET, ui::page).done(routes);
    path("/ui/assets/{name}").on(Method::GET, ui::asset).done(routes);
    path("/ui/session")
        .on(Method::GET, ui::get_sign_in)
        .on(Method::POST, ui::sign_in)
        .on(Method::DELETE, ui::sign_out)
        .done(routes);
    path("/ui/api/org/projects").on(Method::GET, project::list_projects).done(routes);
    path("/ui/api/browser_pools").on(Method::GET, ui::list_pools).done(routes);
    path("/ui/api/browsers").on(Method::GET, session::list_browsers).done(routes);
    path("/ui/api/browsers/{id_or_name}")
        .on(Method::GET, session::get_browser)
        .on(Method::PATCH, session::update_browser)
        .on(Method::DELETE, session::delete_browser)
        .done(routes);
    path(ui::THUMBNAIL).on(Method::GET, ui::thumbnail).done(routes);
    path("/ui/api/browsers/{id}/telemetry/events").on(Method::GET, telemetry::list_telemetry_events).done(routes);
    path("/ui/api/browsers/{id}/telemetry/stream").only_get(telemetry::stream_telemetry).done(routes);
    path("/ui/api/apps").on(Method::GET, deployment::list_apps).done(routes);
    path("/ui/api/deployments").on(Method::GET, deployment::list_deployments).done(routes);
    path("/ui/api/deployments/{id}")
        .on(Method::GET, deployment::get_deployment)
        .on(Method::DELETE, deployment::stop_deployment)
        .done(routes);
    path("/ui/api/deployments/{id}/events").only_get(deployment::follow_deployment).done(routes);
    path("/ui/api/invocations").on(Method::GET, invocation::list_invocations).done(routes);
    path("/ui/api/invocations/{id}")
        .on(Method::GET, invocation::get_invocation)
        .on(Method::PATCH, invocation::update_invocation)
        .done(routes);
    path("/ui/api/invocations/{id}/events").only_get(invocation::follow_invocation).done(routes);
    routes.whole("/ui/api/{tail:.*}", unknown);
    path("/ui/{tail:.*}").on(Method::GET, ui::page).done(routes);
}

/// Into a session, with its token.
fn direct(routes: &mut Routes) {
    path("/vm/{session_id}/cdp").only_get(vm::cdp).done(routes);
    path("/vm/{session_id}/webdriver").only_get(vm::bidi).done(routes);
    path("/vm/{session_id}/webdriver/session/{webdriver_id}").only_get(vm::bidi_of_session).done(routes);
    path("/vm/{session_id}/wd/{tail:.*}")
        .only_get(vm::classic)
        .on(Method::POST, vm::classic)
        .on(Method::DELETE, vm::classic)
        .of_webdriver()
        .done(routes);
    path("/live/assets/{name}").on(Method::GET, vm::live_asset).done(routes);
    path("/live/{session_id}/replays/{replay_id}").on(Method::GET, replay::replay_page).done(routes);
    path("/live/{session_id}/replays/{replay_id}/film").on(Method::GET, replay::watched_film).done(routes);
    path("/live/{session_id}").on(Method::GET, vm::live_page).done(routes);
    path("/live/{session_id}/socket").only_get(vm::live_socket).done(routes);
    path("/live/{session_id}/uploads/{name}").on(Method::PUT, vm::live_upload).done(routes);
    path("/login/assets/{name}").on(Method::GET, login_page::asset).done(routes);
    path("/login/{connection_id}/submit").on(Method::POST, login_page::submit).done(routes);
    path("/login/{connection_id}/events").only_get(login_page::follow).done(routes);
    path("/login/{connection_id}/live").only_get(login_page::live).done(routes);
    path("/login/{connection_id}").on(Method::GET, login_page::open).on(Method::POST, login_page::enter).done(routes);
}

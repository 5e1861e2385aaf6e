//! Assigns paths and methods to handlers.

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
    api_key, cluster, connect, curl, deployment, devtools, engine,
    error::{ApiError, Code},
    invocation, login_page, node, not_supported,
    operation::{Operation, Requirement},
    permissions::RoutePermissions,
    project, replay, resources, session, telemetry, ui, vm, wd_hub,
};

/// A path of the server, with its methods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePattern {
    /// The path. A parameter is a name in braces; one with `:.*` is the rest of the path.
    pub path: String,
    /// The methods, in order; empty if the path takes every method.
    pub methods: Vec<String>,
}

/// Returns all paths of the server, also those that are not in the OpenAPI document.
#[must_use]
pub fn route_patterns() -> Vec<RoutePattern> {
    gathered().patterns
}

/// All paths, grouped by their first segments: a request is compared only with the patterns of its group, not with all
/// of the more than a hundred.
#[derive(Default)]
struct Routes {
    groups: BTreeMap<String, Group>,
    patterns: Vec<RoutePattern>,
}

/// The paths with the same first segment.
#[derive(Default)]
struct Group {
    /// Resources, by the rest of their paths.
    resources: Vec<Resource>,
    /// Resources below a second segment that is a parameter, by that segment.
    below: BTreeMap<String, Vec<Resource>>,
}

impl Routes {
    /// Returns the group of a pattern and the rest of the pattern in it.
    fn place<'a>(&mut self, pattern: &'a str) -> (&mut Vec<Resource>, &'a str) {
        let next = |from: usize| pattern[from..].find('/').map_or(pattern.len(), |at| from + at);
        let first = next(1);
        let second = if first < pattern.len() { next(first + 1) } else { first };
        let group = self.groups.entry(pattern[..first].to_owned()).or_default();
        let parameter = &pattern[first..second];
        if second < pattern.len() && parameter.starts_with("/{") {
            (group.below.entry(parameter.to_owned()).or_default(), &pattern[second..])
        } else {
            (&mut group.resources, &pattern[first..])
        }
    }

    /// Adds a path whose handler responds to every method.
    fn whole<F, Args>(&mut self, pattern: &str, handler: F)
    where
        F: actix_web::Handler<Args>,
        Args: actix_web::FromRequest + 'static,
        F::Output: actix_web::Responder + 'static,
    {
        self.patterns.push(RoutePattern { path: pattern.to_owned(), methods: Vec::new() });
        let (place, rest) = self.place(pattern);
        place.push(web::resource(rest).to(handler));
    }

    fn done(self, config: &mut ServiceConfig) {
        for (first, group) in self.groups {
            let gather = |scope: Scope, resources: Vec<Resource>| resources.into_iter().fold(scope, Scope::service);
            let scope = gather(web::scope(&first), group.resources);
            let below = |scope: Scope, (parameter, resources): (String, Vec<Resource>)| {
                scope.service(gather(web::scope(&parameter), resources))
            };
            config.service(group.below.into_iter().fold(scope, below));
        }
    }
}

/// A path with the routes of its methods. Other methods are refused with 405.
struct Path {
    pattern: String,
    routes: Vec<Route>,
    allow: Vec<Method>,
    /// Whether the clients of the path use WebDriver.
    webdriver: bool,
}

fn path(pattern: impl Into<String>) -> Path {
    Path { pattern: pattern.into(), routes: Vec::new(), allow: vec![Method::OPTIONS], webdriver: false }
}

impl Path {
    fn on<F, Args>(self, method: Method, handler: F) -> Self
    where
        F: actix_web::Handler<Args>,
        Args: actix_web::FromRequest + 'static,
        F::Output: actix_web::Responder + 'static,
    {
        let has_head = method == Method::GET;
        self.route(method, has_head, || Route::new().to(handler.clone()))
    }

    /// Adds a GET without HEAD: for a stream, a WebSocket, or a protocol without HEAD.
    fn only_get<F, Args>(self, handler: F) -> Self
    where
        F: actix_web::Handler<Args>,
        Args: actix_web::FromRequest + 'static,
        F::Output: actix_web::Responder + 'static,
    {
        self.route(Method::GET, false, || Route::new().to(handler.clone()))
    }

    fn route(mut self, method: Method, has_head: bool, route: impl Fn() -> Route) -> Self {
        if has_head {
            // The server omits the body of the response to HEAD.
            self.routes.push(route().method(Method::HEAD));
            self.allow.push(Method::HEAD);
        }
        self.routes.push(route().method(method.clone()));
        self.allow.push(method);
        self
    }

    fn of_webdriver(mut self) -> Self {
        self.webdriver = true;
        self
    }

    fn done(mut self, routes: &mut Routes) {
        self.allow.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        let methods: Vec<String> = self.allow.iter().map(ToString::to_string).collect();
        let allow = methods.join(", ");
        routes.patterns.push(RoutePattern { path: self.pattern.clone(), methods });
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

/// Returns what each route needs of a key with a policy.
pub(crate) fn permissions() -> RoutePermissions {
    let all = resources::operations().all.into_iter();
    RoutePermissions::new(all.map(|operation| (operation.id, operation.method.clone(), patterns(&operation))))
}

/// Returns the paths of an operation. An operation in a session also has a direct path, which accepts the session's
/// token.
fn patterns(operation: &Operation) -> Vec<String> {
    let direct = match operation.requirement {
        Requirement::Session => operation.path.strip_prefix("/browsers/{id_or_name}"),
        _ => None,
    };
    let direct = direct.map(|tail| ["/vm/{session_id}", tail].concat());
    std::iter::once(operation.path.to_owned()).chain(direct).collect()
}

/// Returns the paths of all operations, in the order of their declarations.
fn operation_paths() -> Vec<Path> {
    let mut paths: Vec<Path> = Vec::new();
    for operation in resources::operations().all {
        let has_head = operation.method == Method::GET && !operation.is_stream;
        for pattern in patterns(&operation) {
            let known = paths.iter().position(|path| path.pattern == pattern);
            let path = known.map_or_else(|| path(pattern), |at| paths.remove(at));
            let at = known.unwrap_or(paths.len());
            paths.insert(at, path.route(operation.method.clone(), has_head, || operation.route()));
        }
    }
    paths
}

/// Responds to paths without a route.
pub(crate) async fn unknown(request: HttpRequest) -> Result<HttpResponse, ApiError> {
    Err(not_supported::unknown_route(&request))
}

/// Adds all routes.
pub(crate) fn all(config: &mut ServiceConfig) {
    gathered().done(config);
}

fn gathered() -> Routes {
    let mut gathered = Routes::default();
    let routes = &mut gathered;
    for path in operation_paths() {
        path.done(routes);
    }
    // The target responds to every method, including OPTIONS.
    routes.whole("/vm/{session_id}/curl/raw", curl::raw);
    direct(routes);
    path(cluster::PATH).on(Method::POST, cluster::answer_call).done(routes);
    web_interface(routes);
    gathered
}

/// Adds the pages for people and the requests of these pages: some operations of the API with a cookie instead of a
/// key.
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
    path("/ui/api/org/api_keys")
        .on(Method::GET, api_key::list_api_keys)
        .on(Method::POST, api_key::create_api_key)
        .done(routes);
    path("/ui/api/org/api_keys/{id}").on(Method::DELETE, api_key::delete_api_key).done(routes);
    path("/ui/api/engines").on(Method::GET, engine::list_engines).done(routes);
    path("/ui/api/nodes").on(Method::GET, node::list_nodes).done(routes);
    path("/ui/api/nodes/{id}/drain").on(Method::POST, node::drain_node).done(routes);
    path("/ui/api/nodes/{id}/resume").on(Method::POST, node::resume_node).done(routes);
    path("/ui/api/browser_pools").on(Method::GET, ui::list_pools).done(routes);
    path("/ui/api/browsers").on(Method::GET, session::list_browsers).done(routes);
    path("/ui/api/browsers/{id_or_name}")
        .on(Method::GET, session::get_browser)
        .on(Method::PATCH, session::update_browser)
        .on(Method::DELETE, session::delete_browser)
        .done(routes);
    path("/ui/api/browsers/{id_or_name}/ignored_fields").on(Method::GET, ui::ignored_fields).done(routes);
    path(ui::THUMBNAIL).on(Method::GET, ui::thumbnail).done(routes);
    path("/ui/api/browsers/{id_or_name}/telemetry/events")
        .on(Method::GET, telemetry::list_telemetry_events)
        .done(routes);
    path("/ui/api/browsers/{id_or_name}/telemetry/stream").only_get(telemetry::stream_telemetry).done(routes);
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

/// Adds the routes into a session and a login, with their tokens.
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
    path("/vm/{session_id}/json/version").on(Method::GET, devtools::version).done(routes);
    path("/vm/{session_id}/json/list").on(Method::GET, devtools::list).done(routes);
    path("/vm/{session_id}/json").on(Method::GET, devtools::list).done(routes);
    path("/vm/{session_id}/json/protocol").on(Method::GET, devtools::session_protocol).done(routes);
    path("/vm/{session_id}/json/new").on(Method::PUT, devtools::new).done(routes);
    path("/vm/{session_id}/json/activate/{target_id}").only_get(devtools::activate).done(routes);
    path("/vm/{session_id}/json/close/{target_id}").only_get(devtools::close).done(routes);
    path("/vm/{session_id}/devtools/page/{target_id}").only_get(devtools::page).done(routes);
    for base in ["", "/connect"] {
        path(format!("{base}/json/list")).on(Method::GET, connect::list).done(routes);
        path(format!("{base}/json")).on(Method::GET, connect::list).done(routes);
        path(format!("{base}/json/protocol")).on(Method::GET, devtools::protocol).done(routes);
    }
    path("/json/version").on(Method::GET, connect::version).done(routes);
    path("/wd/hub/session/{id}/{tail:.*}")
        .only_get(wd_hub::command)
        .on(Method::POST, wd_hub::command)
        .on(Method::DELETE, wd_hub::command)
        .of_webdriver()
        .done(routes);
    path("/live/assets/{name}").on(Method::GET, vm::live_asset).done(routes);
    path("/live/{session_id}/replays/{replay_id}").on(Method::GET, replay::replay_page).done(routes);
    path("/live/{session_id}/replays/{replay_id}/film").on(Method::GET, replay::watched_video).done(routes);
    path("/live/{session_id}").on(Method::GET, vm::live_page).done(routes);
    path("/live/{session_id}/socket").only_get(vm::live_socket).done(routes);
    path("/live/{session_id}/uploads/{name}").on(Method::PUT, vm::live_upload).done(routes);
    path("/login/assets/{name}").on(Method::GET, login_page::asset).done(routes);
    path("/login/{connection_id}/submit").on(Method::POST, login_page::submit).done(routes);
    path("/login/{connection_id}/events").only_get(login_page::follow).done(routes);
    path("/login/{connection_id}/live").only_get(login_page::live).done(routes);
    path("/login/{connection_id}").on(Method::GET, login_page::open).on(Method::POST, login_page::enter).done(routes);
}

//! The routes `/auth/connections`. No response contains a value that was submitted to a login.

mod handlers;
mod input;
mod record;
mod stream;

use casement_domain::{
    AuthConnectionId,
    access::Scope,
    permission::{Action, Kind, Verb},
};

pub(crate) use self::{handlers::Accepted as Submitted, input::SubmitBody, record::live_view_url};
use self::{
    handlers::{
        ConnectionListParams, TimelineParams, create_auth_connection, delete_auth_connection, get_auth_connection,
        list_auth_connection_timeline, list_auth_connections, login_auth_connection, submit_auth_connection,
        update_auth_connection,
    },
    input::{CreateBody, LoginBody, UpdateBody},
    record::{ConnectionBody, LoginRecord, TimelineBody},
    stream::{StreamEvent, follow_auth_connection},
};
use crate::operation::{ARCHIVED, LIMIT_REACHED, OTHER_PROJECT, Operations};

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Auth connections", "The auth connection does not exist");
    api.post("/auth/connections", "create_auth_connection", create_auth_connection)
        .summary("Creates an auth connection, and its profile if no profile has that name.")
        .body::<CreateBody>()
        .created::<ConnectionBody>()
        .refuses([ARCHIVED, ("409", "The profile has a connection to that domain"), LIMIT_REACHED]);
    api.get("/auth/connections", "list_auth_connections", list_auth_connections)
        .summary("Lists auth connections, newest first.")
        .query::<ConnectionListParams>()
        .returns_page::<ConnectionBody>();
    api.get("/auth/connections/{id}", "get_auth_connection", get_auth_connection)
        .summary("Returns an auth connection.")
        .returns::<ConnectionBody>();
    api.patch("/auth/connections/{id}", "update_auth_connection", update_auth_connection)
        .summary("Updates an auth connection. A running login continues with the values from before.")
        .body::<UpdateBody>()
        .returns::<ConnectionBody>()
        .refuses([ARCHIVED]);
    api.delete("/auth/connections/{id}", "delete_auth_connection", delete_auth_connection)
        .summary("Deletes an auth connection. Its login is cancelled; its profile stays as it is.")
        .no_content("Deleted")
        .refuses([OTHER_PROJECT]);
    api.post("/auth/connections/{id}/login", "login_auth_connection", login_auth_connection)
        .summary("Starts a login, or returns the running one. The record and the stream show its progress.")
        .body::<LoginBody>()
        .returns::<LoginRecord>()
        .refuses([ARCHIVED]);
    api.post("/auth/connections/{id}/submit", "submit_auth_connection", submit_auth_connection)
        .summary("Submits the values that a login waits for.")
        .body::<SubmitBody>()
        .requires_body()
        .responds::<Submitted>("202", "Accepted")
        .refuses([
            ("400", "The login does not wait for a value, or a value is missing"),
            ("409", "No login waits for values"),
        ]);
    api.get("/auth/connections/{id}/events", "follow_auth_connection", follow_auth_connection)
        .summary(
            "Streams the state of a login: the present one, then every change, until the login ends. Without a login, the stream waits \
             for the first one, at most an hour.",
        )
        .streams::<StreamEvent>();
    api.get("/auth/connections/{id}/timeline", "list_auth_connection_timeline", list_auth_connection_timeline)
        .summary("Lists what happened to an auth connection, newest first.")
        .query::<TimelineParams>()
        .returns_page::<TimelineBody>();
}

/// Returns whether a caller with this scope may log in: then it may also have the URLs of a running login.
fn may_use(scope: &Scope, connection: AuthConnectionId) -> bool {
    let target = scope.target(Kind::AuthConnections, connection.ulid());
    scope.permissions.allows(Action::new(Kind::AuthConnections, Verb::Use), target)
}

//! The routes `/invocations`: calls of the actions that deployments register.

mod handlers;
mod record;

use self::{
    handlers::{CreateInvocation, InvocationBrowsers, InvocationListParams, UpdateInvocation},
    record::InvokedBody,
};
pub(crate) use self::{
    handlers::{follow_invocation, get_invocation, list_invocations, update_invocation},
    record::InvocationBody,
};
use crate::{
    follow::{FollowParams, InvocationEventBody},
    operation::{ARCHIVED, LIMIT_REACHED, Operations},
};

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Invocations", "The invocation does not exist");
    api.post("/invocations", "create_invocation", handlers::create_invocation)
        .summary("Invokes an action, and waits for its end unless `async` is set.")
        .body::<CreateInvocation>()
        .responds::<InvokedBody>("200", "The invocation has ended, successfully or not")
        .responds::<InvokedBody>("202", "The invocation is queued or running")
        .refuses([
            ARCHIVED,
            ("404", "The app, its version or the action does not exist"),
            ("409", "The deployment does not run"),
            LIMIT_REACHED,
        ]);
    api.get("/invocations", "list_invocations", list_invocations)
        .summary("Lists invocations, newest first.")
        .query::<InvocationListParams>()
        .returns_page::<InvocationBody>();
    api.get("/invocations/{id}", "get_invocation", get_invocation)
        .summary("Returns an invocation.")
        .returns::<InvocationBody>();
    api.patch("/invocations/{id}", "update_invocation", update_invocation)
        .summary("Ends an invocation. `failed` cancels it: its process and its browsers end.")
        .body::<UpdateInvocation>()
        .returns::<InvocationBody>()
        .refuses([("409", "The invocation has ended")]);
    api.get("/invocations/{id}/events", "follow_invocation", follow_invocation)
        .summary("Streams the state of an invocation and the output of its program, until it ends.")
        .query::<FollowParams>()
        .streams::<InvocationEventBody>();
    api.get("/invocations/{id}/browsers", "list_invocation_browsers", handlers::list_invocation_browsers)
        .summary("Lists the active browser sessions of an invocation.")
        .description("The key must also allow `browsers:read` on all sessions of the project.")
        .returns::<InvocationBrowsers>();
    api.delete("/invocations/{id}/browsers", "delete_invocation_browsers", handlers::delete_invocation_browsers)
        .summary("Ends the browser sessions of an invocation.")
        .description("The key must also allow `browsers:delete` on all sessions of the project.")
        .no_content("Ended");
}

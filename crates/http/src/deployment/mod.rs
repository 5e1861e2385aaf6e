//! The routes `/deployments` and `/apps`: source code that callers upload, and the apps that it registers.

mod form;
mod handlers;
mod record;

use self::handlers::{AppListParams, DeploymentForm, DeploymentListParams};
pub(crate) use self::{
    handlers::{follow_deployment, get_deployment, list_apps, list_deployments, stop_deployment},
    record::{AppBody, AppSummaryBody, DeploymentBody},
};
use crate::{
    follow::{DeploymentEventBody, FollowParams},
    operation::Operations,
};

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Deployments", "The deployment does not exist");
    api.post("/deployments", "create_deployment", handlers::create_deployment)
        .summary("Uploads the source code of apps. It is built next; the deployment's events show how.")
        .form::<DeploymentForm>()
        .requires_body()
        .created::<DeploymentBody>()
        .refuses([
            ("400", "A field breaks a rule, or the archive is not safe to unpack"),
            ("413", "The archive is longer than 256 MiB"),
        ])
        .fails("The database or the stored files cannot be reached");
    api.get("/deployments", "list_deployments", list_deployments)
        .summary("Lists deployments, newest first.")
        .query::<DeploymentListParams>()
        .returns_page::<DeploymentBody>();
    api.get("/deployments/{id}", "get_deployment", get_deployment)
        .summary("Returns a deployment.")
        .returns::<DeploymentBody>();
    api.delete("/deployments/{id}", "stop_deployment", stop_deployment)
        .summary("Stops a deployment. Its unfinished invocations fail. One that has ended stays as it is.")
        .no_content("Stopped");
    api.get("/deployments/{id}/events", "follow_deployment", follow_deployment)
        .summary(
            "Streams the state of a deployment, the output of its build and the apps that it registers, until it ends.",
        )
        .query::<FollowParams>()
        .streams::<DeploymentEventBody>();
    api.resource("Apps", "The app does not exist");
    api.get("/apps", "list_apps", list_apps)
        .summary("Lists the apps that can be invoked, newest first.")
        .query::<AppListParams>()
        .returns_page::<AppBody>();
}

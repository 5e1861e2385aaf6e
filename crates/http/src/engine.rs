//! The route `/engines`: what starts the browsers of the installation, and what each engine can do.

use casement_domain::engine::{Capability, EngineDescription, Support};
use serde::Serialize;

use crate::{
    answer::{self, Answer},
    operation::Operations,
    request::{OrganizationKey, Request},
    schema::ToSchema,
};

/// An engine: it starts browsers.
#[derive(Serialize, ToSchema)]
#[schema(as = Engine)]
pub(crate) struct EngineBody {
    /// The name, for the field `engine` of sessions and pools.
    name: String,
    /// `local`: Chromium in sandboxes of this server. `webdriver`: browsers of a WebDriver server, as a Selenium Grid.
    kind: &'static str,
    /// Whether requests that name no engine get this one.
    default: bool,
    /// The maximum number of browsers at the same time on each node; absent if only the other limits count.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_sessions: Option<u32>,
    /// What the engine can do, all capabilities in a fixed order.
    capabilities: Vec<CapabilityBody>,
}

/// How far an engine supports a capability.
#[derive(Serialize, ToSchema)]
#[schema(as = EngineCapability)]
struct CapabilityBody {
    /// The name of the capability, as `live_view`.
    name: &'static str,
    /// `full`: as documented. `partial`: with the limitation in `note`. `none`: refused with `not_supported`.
    support: &'static str,
    /// The limitation of partial support, or the reason why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl EngineBody {
    fn new(engine: &EngineDescription, default: &EngineDescription) -> Self {
        Self {
            name: engine.name.to_string(),
            kind: engine.kind.as_str(),
            default: engine.name == default.name,
            max_sessions: engine.max_sessions,
            capabilities: Capability::ALL.map(|capability| CapabilityBody::new(engine, capability)).into(),
        }
    }
}

impl CapabilityBody {
    fn new(engine: &EngineDescription, capability: Capability) -> Self {
        let support = engine.support(capability);
        Self {
            name: capability.as_str(),
            support: match support {
                Support::Full => "full",
                Support::Partial(_) => "partial",
                Support::None(_) => "none",
            },
            note: support.note().map(str::to_owned),
        }
    }
}

pub(crate) fn operations(api: &mut Operations) {
    api.resource("Engines", "The engine does not exist");
    api.get("/engines", "list_engines", list_engines)
        .summary("Lists the engines of the installation and what each can do, the local one first.")
        .returns_page::<EngineBody>();
}

pub(crate) async fn list_engines(request: Request<OrganizationKey>) -> Answer {
    let (engines, page) = (request.services().sessions.engines(), request.page()?);
    let default = engines.default_engine();
    let skipped = usize::try_from(page.offset).unwrap_or(usize::MAX);
    let found = page.cut(engines.all().into_iter().skip(skipped).collect());
    Ok(answer::list(&found.map(|engine| EngineBody::new(&engine, &default))))
}

//! The selection of the way of a session's traffic.

use crate::field::{FieldCode, Fields, InvalidValue};
use crate::reference::Reference;
use crate::text_enum::text_enum;

text_enum! {
    /// A way without a proxy of the project.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProxyMode {
        /// Directly to the destination.
        Direct => "direct",
        /// As browsers of this installation connect by default, which is directly too.
        Default => "default",
    }
}

/// The unchecked selection: exactly one of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxySelection {
    /// The id of a proxy of the project.
    pub id: Option<String>,
    /// The name of a proxy of the project.
    pub name: Option<String>,
    /// `direct` or `default`.
    pub mode: Option<String>,
}

/// The checked selection, whose proxy is not resolved yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectedProxy {
    /// None: a direct connection.
    Direct,
    /// A proxy by its id or its name, from the field `proxy_id`.
    IdOrName(String),
    /// A proxy by its id, from the field `proxy`.
    Id(String),
    /// A proxy by its name, from the field `proxy`.
    Name(String),
}

impl SelectedProxy {
    /// Returns the name of the field that selects the proxy.
    pub(crate) fn field(&self) -> &'static str {
        match self {
            Self::IdOrName(_) => "proxy_id",
            Self::Direct | Self::Id(_) | Self::Name(_) => "proxy",
        }
    }
}

impl ProxySelection {
    /// Checks the selection.
    ///
    /// # Errors
    /// `required` or `mutually_exclusive` unless exactly one field is given; `not_allowed` for an unknown mode.
    pub fn parse(&self) -> Result<SelectedProxy, InvalidValue> {
        match (&self.id, &self.name, &self.mode) {
            (Some(id), None, None) => Ok(SelectedProxy::Id(id.clone())),
            (None, Some(name), None) => Ok(SelectedProxy::Name(name.clone())),
            (None, None, Some(mode)) => match ProxyMode::ALL.iter().any(|known| known.as_str() == mode) {
                true => Ok(SelectedProxy::Direct),
                false => Err(InvalidValue::new(FieldCode::NotAllowed, "must be one of direct, default").of("mode")),
            },
            (None, None, None) => Err(InvalidValue::new(FieldCode::Required, "needs an id, a name or a mode")),
            _ => Err(InvalidValue::new(FieldCode::MutuallyExclusive, "takes one of id, name and mode")),
        }
    }
}

/// Returns the selection of a request that may have the fields `proxy` and `proxy_id`; `Some(None)` for
/// `proxy_id` selects a direct connection. Errors are added to `fields`.
pub(crate) fn selected(
    fields: &mut Fields,
    proxy: Option<&ProxySelection>,
    proxy_id: Option<Option<String>>,
) -> Option<SelectedProxy> {
    let parsed = fields.take_optional("proxy", proxy, ProxySelection::parse);
    if proxy.is_some() && proxy_id.is_some() {
        fields.refuse("proxy", InvalidValue::new(FieldCode::MutuallyExclusive, "takes the place of proxy_id"));
    }
    parsed.or_else(|| proxy_id.map(|text| text.map_or(SelectedProxy::Direct, SelectedProxy::IdOrName)))
}

/// Returns the reference to a proxy of a route as a selection.
pub(super) fn referenced(reference: &Reference) -> Option<SelectedProxy> {
    match (&reference.id, &reference.name) {
        (Some(id), None) => Some(SelectedProxy::Id(id.clone())),
        (None, Some(name)) => Some(SelectedProxy::Name(name.clone())),
        _ => None,
    }
}

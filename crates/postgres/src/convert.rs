//! Between the domain's values and the columns that hold them.

use std::collections::BTreeMap;
use std::fmt::Display;

use casement_domain::browser::{BrowserPolicy, Shape, StartUrl, Viewport};
use casement_domain::name::{LabelName, SlugName};
use casement_domain::organization::Caps;
use casement_domain::profile::LoadedProfile;
use casement_domain::session::Tags;
use casement_domain::telemetry::{Capture, Category};
use casement_domain::{ExtensionId, ProfileId, ProfileVersionId, ProxyId};
use serde_json::Value;
use ulid::Ulid;
use uuid::Uuid;

use crate::error::BadRow;
pub(crate) use crate::query::{contains, count};

/// An identifier as its column holds it.
pub(crate) fn uuid(ulid: Ulid) -> Uuid {
    Uuid::from_u128(ulid.0)
}

/// The identifier in a column.
pub(crate) fn ulid(uuid: Uuid) -> Ulid {
    Ulid(uuid.as_u128())
}

/// The identifier in the text of a notification is written by the domain; this is how SQL says the same.
pub(crate) fn number(column: &'static str, value: i32) -> Result<u32, BadRow> {
    u32::try_from(value).map_err(|error| BadRow::new(column, error))
}

/// What the domain has bounded far below the column's bound.
pub(crate) fn int(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

pub(crate) fn label(column: &'static str, text: &str) -> Result<LabelName, BadRow> {
    LabelName::parse(text).map_err(|bad| unreadable(column, &bad))
}

pub(crate) fn slug(column: &'static str, text: &str) -> Result<SlugName, BadRow> {
    SlugName::parse(text).map_err(|bad| unreadable(column, &bad))
}

pub(crate) fn start_url(text: Option<&str>) -> Result<Option<StartUrl>, BadRow> {
    text.map(|text| StartUrl::parse(text).map_err(|bad| unreadable("start_url", &bad))).transpose()
}

pub(crate) fn tags(value: Value) -> Result<Tags, BadRow> {
    let pairs: BTreeMap<String, String> = serde_json::from_value(value).map_err(|error| BadRow::new("tags", error))?;
    Tags::parse(pairs).map_err(|bad| unreadable("tags", &bad))
}

/// What is captured, as its column holds it.
pub(crate) fn telemetry_value(capture: Option<&Capture>) -> Option<Vec<String>> {
    capture.map(|capture| capture.categories().map(|category| category.as_str().to_owned()).collect())
}

/// What is captured. A category that a later version knows is captured by that one alone.
pub(crate) fn telemetry(column: Option<Vec<String>>) -> Option<Capture> {
    Capture::only(column?.iter().filter_map(|text| Category::parse(text)))
}

pub(crate) fn tags_value(tags: &Tags) -> Value {
    tags.as_map().iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect()
}

pub(crate) fn unreadable(column: &'static str, why: &impl std::fmt::Debug) -> BadRow {
    BadRow::new(column, format!("{why:?}"))
}

/// The value whose stored text this is.
pub(crate) fn by_text<T: Copy>(
    column: &'static str,
    all: &[T],
    text_of: impl Fn(T) -> &'static str,
    text: impl AsRef<str> + Display,
) -> Result<T, BadRow> {
    let found = all.iter().copied().find(|value| text_of(*value) == text.as_ref());
    found.ok_or_else(|| BadRow::new(column, text))
}

pub(crate) fn caps(sessions: Option<i32>, pooled: Option<i32>, invocations: Option<i32>) -> Result<Caps, BadRow> {
    let cap = |column, value: Option<i32>| value.map(|value| number(column, value)).transpose();
    Ok(Caps {
        concurrent_sessions: cap("max_concurrent_sessions", sessions)?,
        pooled_sessions: cap("max_pooled_sessions", pooled)?,
        concurrent_invocations: cap("max_concurrent_invocations", invocations)?,
    })
}

/// The members of a shape, as three tables hold them.
pub(crate) struct ShapeParts {
    pub(crate) flags: (bool, bool, bool),
    pub(crate) viewport: (i32, i32, i32),
    pub(crate) policy: Option<Value>,
    pub(crate) extensions: Vec<Uuid>,
    pub(crate) proxy: Option<Uuid>,
    pub(crate) profile: (Option<Uuid>, Option<Uuid>, bool),
}

impl ShapeParts {
    pub(crate) fn of(shape: &Shape) -> Self {
        let Viewport { width, height, refresh_rate } = shape.viewport;
        Self {
            flags: (shape.headless, shape.stealth, shape.kiosk_mode),
            viewport: (int(width), int(height), int(refresh_rate)),
            policy: shape.policy.as_ref().map(|policy| Value::Object(policy.as_map().clone())),
            extensions: shape.extensions.iter().map(|id| uuid(id.ulid())).collect(),
            proxy: shape.proxy.map(|id| uuid(id.ulid())),
            profile: (
                shape.profile.map(|profile| uuid(profile.id.ulid())),
                shape.profile.and_then(|profile| profile.version).map(|id| uuid(id.ulid())),
                shape.profile.is_some_and(|profile| profile.save_changes),
            ),
        }
    }

    pub(crate) fn shape(self) -> Result<Shape, BadRow> {
        let policy = match self.policy {
            None => None,
            Some(Value::Object(map)) => Some(BrowserPolicy::parse(map).map_err(|bad| unreadable("policy", &bad))?),
            Some(_) => return Err(BadRow::new("policy", "not an object")),
        };
        let (headless, stealth, kiosk_mode) = self.flags;
        let (width, height, refresh_rate) = self.viewport;
        let viewport = Viewport {
            width: number("viewport_width", width)?,
            height: number("viewport_height", height)?,
            refresh_rate: number("viewport_refresh_rate", refresh_rate)?,
        };
        let extensions = self.extensions.into_iter().map(|id| ExtensionId::from_ulid(ulid(id))).collect();
        let proxy = self.proxy.map(|id| ProxyId::from_ulid(ulid(id)));
        let (profile, version, save_changes) = self.profile;
        let profile = profile.map(|id| LoadedProfile {
            id: ProfileId::from_ulid(ulid(id)),
            version: version.map(|id| ProfileVersionId::from_ulid(ulid(id))),
            save_changes,
        });
        Ok(Shape { headless, stealth, kiosk_mode, viewport, policy, extensions, proxy, profile })
    }
}

/// Declares the columns of a shape for one table.
macro_rules! shape_columns {
    ($name:ident, $table:ident) => {
        #[derive(
            Debug,
            diesel::Queryable,
            diesel::QueryableByName,
            diesel::Selectable,
            diesel::Insertable,
            diesel::AsChangeset,
        )]
        #[diesel(table_name = $table, treat_none_as_null = true, check_for_backend(diesel::pg::Pg))]
        pub(crate) struct $name {
            headless: bool,
            stealth: bool,
            kiosk_mode: bool,
            viewport_width: i32,
            viewport_height: i32,
            viewport_refresh_rate: i32,
            policy: Option<serde_json::Value>,
            extension_ids: Vec<uuid::Uuid>,
            proxy_id: Option<uuid::Uuid>,
            profile_id: Option<uuid::Uuid>,
            profile_version_id: Option<uuid::Uuid>,
            save_profile: bool,
        }

        impl From<&casement_domain::browser::Shape> for $name {
            fn from(shape: &casement_domain::browser::Shape) -> Self {
                let parts = $crate::convert::ShapeParts::of(shape);
                let ((headless, stealth, kiosk_mode), (viewport_width, viewport_height, viewport_refresh_rate)) =
                    (parts.flags, parts.viewport);
                let (policy, extension_ids, proxy_id) = (parts.policy, parts.extensions, parts.proxy);
                let (profile_id, profile_version_id, save_profile) = parts.profile;
                Self {
                    headless,
                    stealth,
                    kiosk_mode,
                    viewport_width,
                    viewport_height,
                    viewport_refresh_rate,
                    policy,
                    extension_ids,
                    proxy_id,
                    profile_id,
                    profile_version_id,
                    save_profile,
                }
            }
        }

        impl TryFrom<$name> for casement_domain::browser::Shape {
            type Error = $crate::error::BadRow;

            fn try_from(row: $name) -> Result<Self, Self::Error> {
                let parts = $crate::convert::ShapeParts {
                    flags: (row.headless, row.stealth, row.kiosk_mode),
                    viewport: (row.viewport_width, row.viewport_height, row.viewport_refresh_rate),
                    policy: row.policy,
                    extensions: row.extension_ids,
                    proxy: row.proxy_id,
                    profile: (row.profile_id, row.profile_version_id, row.save_profile),
                };
                parts.shape()
            }
        }
    };
}
pub(crate) use shape_columns;

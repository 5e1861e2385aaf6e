//! The shape of a browser, which three tables have: one value, and columns for what queries use.

use casement_domain::browser::{Locale, Location, Memory, ReservedMemory, Shape, TimeZone, Viewport};
use casement_domain::engine::EngineName;
use casement_domain::field::InvalidValue;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::column::ColumnValue;

/// The column `shape`: a [`Shape`] without what has columns of its own.
#[derive(Clone, Debug)]
pub(crate) struct ShapeValue(pub(crate) Shape);

/// The stored form. The members have the names of the columns that the version before has instead of the value, so each is
/// always written.
#[derive(Serialize, Deserialize)]
struct StoredShape {
    engine: String,
    headless: bool,
    stealth: bool,
    kiosk_mode: bool,
    viewport_width: u32,
    viewport_height: u32,
    viewport_refresh_rate: u32,
    memory_mib: Option<u32>,
    time_zone: Option<String>,
    locale: Option<String>,
}

impl ColumnValue for ShapeValue {
    type Raw = Value;

    fn to_raw(&self) -> Value {
        let Self(shape) = self;
        let Viewport { width, height, refresh_rate } = shape.viewport;
        let stored = StoredShape {
            engine: shape.engine.as_str().to_owned(),
            headless: shape.headless,
            stealth: shape.stealth,
            kiosk_mode: shape.kiosk_mode,
            viewport_width: width,
            viewport_height: height,
            viewport_refresh_rate: refresh_rate,
            memory_mib: shape.memory.map(|memory| memory.limit.mib),
            time_zone: shape.location.time_zone.map(|zone| zone.as_str().to_owned()),
            locale: shape.location.locale.map(|locale| locale.as_str().to_owned()),
        };
        // Texts and numbers always have a JSON form.
        serde_json::to_value(stored).unwrap_or_default()
    }

    fn from_raw(raw: Value) -> Result<Self, String> {
        let stored: StoredShape = serde_json::from_value(raw).map_err(|error| error.to_string())?;
        let refused = |member: &'static str| move |bad: InvalidValue| format!("{member}: {bad:?}");
        let time_zone =
            stored.time_zone.map(|zone| TimeZone::parse(&zone)).transpose().map_err(refused("time_zone"))?;
        let locale = stored.locale.map(|locale| Locale::parse(&locale)).transpose().map_err(refused("locale"))?;
        Ok(Self(Shape {
            engine: EngineName::parse(&stored.engine).map_err(refused("engine"))?,
            headless: stored.headless,
            stealth: stored.stealth,
            kiosk_mode: stored.kiosk_mode,
            viewport: Viewport {
                width: stored.viewport_width,
                height: stored.viewport_height,
                refresh_rate: stored.viewport_refresh_rate,
            },
            memory: stored.memory_mib.map(|mib| ReservedMemory { limit: Memory { mib }, places: 1 }),
            location: Location { time_zone, locale },
            ..Shape::default()
        }))
    }
}

/// Returns the members of a stored shape that a viewport has.
pub(crate) fn with_viewport(viewport: Viewport) -> Value {
    let Viewport { width, height, refresh_rate } = viewport;
    json!({ "viewport_width": width, "viewport_height": height, "viewport_refresh_rate": refresh_rate })
}

/// Returns the members of a stored shape that a location has.
pub(crate) fn with_location(location: Location) -> Value {
    let Location { time_zone, locale } = location;
    json!({ "time_zone": time_zone.map(|zone| zone.as_str()), "locale": locale.map(|locale| locale.as_str()) })
}

/// Declares the columns of a shape for one table.
macro_rules! shape_columns {
    ($name:ident, $table:ident) => {
        $crate::column::row! {
            #[derive(Debug, Queryable, Selectable, Insertable, AsChangeset)]
            #[diesel(table_name = $table, treat_none_as_null = true, check_for_backend(diesel::pg::Pg))]
            pub(crate) struct $name {
                shape: $crate::column::Column<$crate::shape::ShapeValue>,
                policy: Option<$crate::column::Column<casement_domain::browser::BrowserPolicy>>,
                extension_ids: Vec<$crate::column::Column<casement_domain::ExtensionId>>,
                proxy_id: Option<$crate::column::Column<casement_domain::ProxyId>>,
                profile_id: Option<$crate::column::Column<casement_domain::ProfileId>>,
                profile_version_id: Option<$crate::column::Column<casement_domain::ProfileVersionId>>,
                save_profile: bool,
                memory_places: $crate::column::Column<u32>,
                network: Option<$crate::column::Column<casement_domain::network::Network>>,
            }
        }

        impl $crate::column::Stored<casement_domain::browser::Shape> for $name {
            fn of(shape: &casement_domain::browser::Shape) -> Self {
                use $crate::column::Column;
                Self {
                    shape: Column($crate::shape::ShapeValue(shape.clone())),
                    policy: shape.policy.clone().map(Column),
                    extension_ids: shape.extensions.iter().copied().map(Column).collect(),
                    proxy_id: shape.proxy.map(Column),
                    profile_id: shape.profile.map(|profile| Column(profile.id)),
                    profile_version_id: shape.profile.and_then(|profile| profile.version).map(Column),
                    save_profile: shape.profile.is_some_and(|profile| profile.save_changes),
                    memory_places: Column(shape.places()),
                    network: shape.network.clone().map(Column),
                }
            }

            fn value(self) -> Result<casement_domain::browser::Shape, $crate::error::BadRow> {
                let Self { shape, memory_places, profile_version_id, save_profile, .. } = self;
                let $crate::column::Column($crate::shape::ShapeValue(shape)) = shape;
                Ok(casement_domain::browser::Shape {
                    policy: self.policy.map(|policy| policy.0),
                    extensions: self.extension_ids.into_iter().map(|id| id.0).collect(),
                    proxy: self.proxy_id.map(|id| id.0),
                    profile: self.profile_id.map(|id| casement_domain::profile::LoadedProfile {
                        id: id.0,
                        version: profile_version_id.map(|id| id.0),
                        save_changes: save_profile,
                    }),
                    memory: shape
                        .memory
                        .map(|memory| casement_domain::browser::ReservedMemory { places: memory_places.0, ..memory }),
                    network: self.network.map(|network| network.0),
                    ..shape
                })
            }
        }
    };
}
pub(crate) use shape_columns;

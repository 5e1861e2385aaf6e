//! The columns of the shape of a browser, which three tables have.

/// Declares the columns of a shape for one table.
macro_rules! shape_columns {
    ($name:ident, $table:ident) => {
        $crate::column::row! {
            #[derive(Debug, Queryable, Selectable, Insertable, AsChangeset)]
            #[diesel(table_name = $table, treat_none_as_null = true, check_for_backend(diesel::pg::Pg))]
            pub(crate) struct $name {
                engine: $crate::column::Column<casement_domain::engine::EngineName>,
                headless: bool,
                stealth: bool,
                kiosk_mode: bool,
                viewport_width: $crate::column::Column<u32>,
                viewport_height: $crate::column::Column<u32>,
                viewport_refresh_rate: $crate::column::Column<u32>,
                policy: Option<$crate::column::Column<casement_domain::browser::BrowserPolicy>>,
                extension_ids: Vec<$crate::column::Column<casement_domain::ExtensionId>>,
                proxy_id: Option<$crate::column::Column<casement_domain::ProxyId>>,
                profile_id: Option<$crate::column::Column<casement_domain::ProfileId>>,
                profile_version_id: Option<$crate::column::Column<casement_domain::ProfileVersionId>>,
                save_profile: bool,
                memory_mib: Option<$crate::column::Column<u32>>,
                memory_places: $crate::column::Column<u32>,
                time_zone: Option<$crate::column::Column<casement_domain::browser::TimeZone>>,
                locale: Option<$crate::column::Column<casement_domain::browser::Locale>>,
                network: Option<$crate::column::Column<casement_domain::network::Network>>,
            }
        }

        impl $crate::column::Stored<casement_domain::browser::Shape> for $name {
            fn of(shape: &casement_domain::browser::Shape) -> Self {
                use $crate::column::Column;
                Self {
                    engine: Column(shape.engine.clone()),
                    headless: shape.headless,
                    stealth: shape.stealth,
                    kiosk_mode: shape.kiosk_mode,
                    viewport_width: Column(shape.viewport.width),
                    viewport_height: Column(shape.viewport.height),
                    viewport_refresh_rate: Column(shape.viewport.refresh_rate),
                    policy: shape.policy.clone().map(Column),
                    extension_ids: shape.extensions.iter().copied().map(Column).collect(),
                    proxy_id: shape.proxy.map(Column),
                    profile_id: shape.profile.map(|profile| Column(profile.id)),
                    profile_version_id: shape.profile.and_then(|profile| profile.version).map(Column),
                    save_profile: shape.profile.is_some_and(|profile| profile.save_changes),
                    memory_mib: shape.memory.map(|memory| Column(memory.limit.mib)),
                    memory_places: Column(shape.places()),
                    time_zone: shape.location.time_zone.map(Column),
                    locale: shape.location.locale.map(Column),
                    network: shape.network.clone().map(Column),
                }
            }

            fn value(self) -> Result<casement_domain::browser::Shape, $crate::error::BadRow> {
                Ok(casement_domain::browser::Shape {
                    engine: self.engine.0,
                    headless: self.headless,
                    stealth: self.stealth,
                    kiosk_mode: self.kiosk_mode,
                    viewport: casement_domain::browser::Viewport {
                        width: self.viewport_width.0,
                        height: self.viewport_height.0,
                        refresh_rate: self.viewport_refresh_rate.0,
                    },
                    policy: self.policy.map(|policy| policy.0),
                    extensions: self.extension_ids.into_iter().map(|id| id.0).collect(),
                    proxy: self.proxy_id.map(|id| id.0),
                    profile: self.profile_id.map(|id| casement_domain::profile::LoadedProfile {
                        id: id.0,
                        version: self.profile_version_id.map(|id| id.0),
                        save_changes: self.save_profile,
                    }),
                    memory: self.memory_mib.map(|mib| casement_domain::browser::ReservedMemory {
                        limit: casement_domain::browser::Memory { mib: mib.0 },
                        places: self.memory_places.0,
                    }),
                    location: casement_domain::browser::Location {
                        time_zone: self.time_zone.map(|zone| zone.0),
                        locale: self.locale.map(|locale| locale.0),
                    },
                    network: self.network.map(|network| network.0),
                })
            }
        }
    };
}
pub(crate) use shape_columns;

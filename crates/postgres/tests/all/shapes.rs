//! The shape of a browser, as this version stores it and as the version before does.

use casement_domain::Replaced;
use casement_domain::browser::{
    BrowserRepository, Locale, Location, Memory, ReservedMemory, Shape, TimeZone, Viewport,
};
use casement_domain::engine::EngineName;
use casement_domain::pool::{Generation, Pool, PoolRepository, PoolStored};
use casement_domain::session::{Created, Session, SessionRepository};
use casement_domain::testing;
use pretty_assertions::assert_eq;

use crate::support::TestResult;
use crate::world::{Fault, World, warming};

/// The tables with shapes.
const TABLES: [&str; 3] = ["browser_pools", "browsers", "sessions"];
/// The columns of the version before that the value replaces.
const COLUMNS: &str = "engine, headless, stealth, kiosk_mode, viewport_width, viewport_height, viewport_refresh_rate, \
    memory_mib, time_zone, locale";
/// [`shape`] in these columns, in SQL and as PostgreSQL prints it.
const VALUES: &str = "'grid', true, true, false, 800, 600, 30, 4096, 'Europe/Berlin', 'de-CH'";
const PRINTED: &str = "(grid,t,t,f,800,600,30,4096,Europe/Berlin,de-CH)";

fn shape() -> Result<Shape, Fault> {
    Ok(Shape {
        engine: EngineName::parse("grid").map_err(|bad| format!("{bad:?}"))?,
        headless: true,
        stealth: true,
        kiosk_mode: false,
        viewport: Viewport { width: 800, height: 600, refresh_rate: 30 },
        memory: Some(ReservedMemory { limit: Memory { mib: 4096 }, places: 1 }),
        location: location("Europe/Berlin", "de-CH")?,
        ..Shape::default()
    })
}

fn location(time_zone: &str, locale: &str) -> Result<Location, Fault> {
    let time_zone = TimeZone::parse(time_zone).map_err(|bad| format!("{bad:?}"))?;
    let locale = Locale::parse(locale).map_err(|bad| format!("{bad:?}"))?;
    Ok(Location { time_zone: Some(time_zone), locale: Some(locale) })
}

/// Stores a pool, a browser of it and a session of this shape.
async fn store(world: &World, shape: &Shape) -> TestResult {
    let mut pool = testing::pool(1).build();
    pool.config.shape = shape.clone();
    assert_eq!(world.pools.create(testing::organization_id(), &pool, 100).await?, PoolStored::Yes);
    let mut browser = warming(2);
    browser.shape = shape.clone();
    assert_eq!(world.pools.warm(&browser, Generation::default()).await?, Replaced::Yes);
    let session = Session { shape: shape.clone(), ..testing::session(1) };
    assert_eq!(world.sessions.create(testing::organization_id(), &session, None).await?, Created::Yes);
    Ok(())
}

/// Returns the stored shapes of the pool, the browser and the session.
async fn stored(world: &World) -> Result<[Shape; 3], Fault> {
    let pool: Option<Pool> = world.pools.find_by_id(testing::pool_id(1)).await?;
    let browser = world.browsers.find(testing::browser_id(2)).await?;
    let session = world.sessions.find(testing::session_id(1)).await?;
    Ok([pool.ok_or("no pool")?.config.shape, browser.ok_or("no browser")?.shape, session.ok_or("no session")?.shape])
}

/// Returns the columns of the version before, of each table.
async fn printed(world: &World) -> Result<Vec<String>, Fault> {
    let mut found = Vec::new();
    for table in TABLES {
        let rows = world.db.rows(&format!("SELECT ROW({COLUMNS})::text FROM {table}")).await?;
        found.extend(rows.into_iter().flatten());
    }
    Ok(found)
}

#[tokio::test]
async fn the_version_before_reads_the_shapes_that_this_version_stores() -> TestResult {
    let world = World::new().await?;
    store(&world, &shape()?).await?;

    assert_eq!(printed(&world).await?, [PRINTED; 3]);
    Ok(())
}

#[tokio::test]
async fn the_version_before_reads_the_changes_of_this_version() -> TestResult {
    let world = World::new().await?;
    store(&world, &shape()?).await?;
    let session = testing::session_id(1);

    world.sessions.set_viewport(session, Viewport { width: 1024, height: 768, refresh_rate: 60 }).await?;
    assert!(world.sessions.set_location(session, location("Asia/Tokyo", "ja")?).await?);

    let changed = "(grid,t,t,f,1024,768,60,4096,Asia/Tokyo,ja)";
    assert_eq!(printed(&world).await?, [PRINTED, PRINTED, changed]);
    Ok(())
}

#[tokio::test]
async fn this_version_reads_the_changes_of_the_version_before() -> TestResult {
    let world = World::new().await?;
    store(&world, &Shape::default()).await?;

    for table in TABLES {
        world.db.execute(&format!("UPDATE {table} SET ({COLUMNS}) = ROW({VALUES})")).await?;
    }

    assert_eq!(stored(&world).await?, [shape()?, shape()?, shape()?]);
    Ok(())
}

#[tokio::test]
async fn this_version_reads_the_rows_that_the_version_before_stores() -> TestResult {
    let world = World::new().await?;
    store(&world, &shape()?).await?;

    for table in TABLES {
        // A row without the value, as a statement stores it that does not know the column.
        let others = "SELECT string_agg(quote_ident(column_name), ', ') FROM information_schema.columns
            WHERE table_schema = 'public' AND column_name <> 'shape' AND table_name = ";
        let others = world.db.rows(&format!("{others}'{table}'")).await?.concat().concat();
        world.db.execute(&format!("CREATE TABLE before AS SELECT {others} FROM {table}")).await?;
        // Rows refer to each other, so the triggers of foreign keys are disabled; those of shapes are not.
        world
            .db
            .execute(&format!(
                "ALTER TABLE {table} DISABLE TRIGGER ALL; ALTER TABLE {table} ENABLE TRIGGER {table}_shape"
            ))
            .await?;
        world
            .db
            .execute(&format!(
                "DELETE FROM {table}; INSERT INTO {table} ({others}) SELECT {others} FROM before; DROP TABLE before"
            ))
            .await?;
    }

    assert_eq!(stored(&world).await?, [shape()?, shape()?, shape()?]);
    Ok(())
}

#[tokio::test]
async fn an_upgrade_keeps_the_shapes_of_all_rows() -> TestResult {
    let world = World::new().await?;
    store(&world, &shape()?).await?;
    world.db.execute(include_str!("../../../../migrations/2026-11-28-170000_shapes/down.sql")).await?;

    world.db.execute(include_str!("../../../../migrations/2026-11-28-170000_shapes/up.sql")).await?;

    assert_eq!(stored(&world).await?, [shape()?, shape()?, shape()?]);
    assert_eq!(printed(&world).await?, [PRINTED; 3]);
    Ok(())
}

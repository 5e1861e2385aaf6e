//! Where a reader finds the documents of this program.

use std::path::{Path, PathBuf};

/// Follows the help of the program.
pub(crate) const HINT: &str = "\
Documents: man casement; guides, pages and examples are in /usr/share/doc/casement (of the package), in share/doc/casement
(of the tarball) or in docs (of the sources), and begin with guides/first-session.md. A server shows its API at
/openapi.json, and pages for people at /ui.";

/// The places of the documents from the folder of the program: of an installation, and of a build in the sources.
const PLACES: [&str; 3] = ["../share/doc/casement", "../../docs", "../../../docs"];
const FIRST_GUIDE: &str = "guides/first-session.md";

/// Returns the first guide in the documents of this installation; `None` if it has none.
pub(crate) fn first_guide() -> Option<PathBuf> {
    first_guide_beside(std::env::current_exe().ok()?.parent()?)
}

fn first_guide_beside(folder: &Path) -> Option<PathBuf> {
    let guides = PLACES.iter().map(|place| folder.join(place).join(FIRST_GUIDE));
    guides.filter_map(|guide| guide.canonicalize().ok()).find(|guide| guide.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_are_found_from_an_installed_and_from_a_built_program() -> anyhow::Result<()> {
        for (program, guide) in [
            ("usr/bin", "usr/share/doc/casement/guides/first-session.md"),
            ("clone/target/debug", "clone/docs/guides/first-session.md"),
        ] {
            let root = tempfile::tempdir()?;
            let [program, guide] = [program, guide].map(|path| root.path().join(path));
            std::fs::create_dir_all(&program)?;
            assert_eq!(first_guide_beside(&program), None);
            std::fs::create_dir_all(guide.parent().expect("a folder"))?;
            std::fs::write(&guide, "")?;
            assert_eq!(first_guide_beside(&program), Some(guide.canonicalize()?));
        }
        Ok(())
    }
}

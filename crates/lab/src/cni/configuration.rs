//! A network configuration of which the lab makes a candidate: read from a file, and checked for what the lab needs.

use std::path::Path;

use ::cni::Conflist;
use linux::features::Feature;

use super::values;
use crate::LabError;

/// A network configuration that can be a candidate: its name fits into those of namespaces, and its marks are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// The list as it was parsed; its name and marks have been checked.
    pub list: Conflist,
}

/// The longest name, in bytes: namespaces are called after it, and their names may have 64.
const NAME_BYTES_MAX: usize = 40;
/// The greatest file in bytes. Real ones have hundreds; a file of a gigabyte is a mistake.
const FILE_BYTES_MAX: u64 = 1 << 20;

impl Configuration {
    /// Reads a file.
    ///
    /// # Errors
    /// [`LabError::Conflist`] with the first thing that is wrong.
    pub fn read(file: &Path) -> Result<Configuration, LabError> {
        let wrong = |why: String| LabError::Conflist { file: file.to_owned(), why };
        let found = std::fs::metadata(file).map_err(|error| wrong(error.to_string()))?;
        if !found.is_file() || found.len() > FILE_BYTES_MAX {
            return Err(wrong(format!("a file of at most {FILE_BYTES_MAX} bytes is expected")));
        }
        let bytes = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
        Configuration::parse(&text).map_err(wrong)
    }

    /// Reads a text; the error says what is wrong, in words.
    pub(super) fn parse(text: &str) -> Result<Configuration, String> {
        let list = Conflist::parse(text).map_err(|error| error.to_string())?;
        if list.name.len() > NAME_BYTES_MAX {
            return Err(format!(
                "`name` has {} bytes; namespaces are called after it, {NAME_BYTES_MAX} are the most",
                list.name.len()
            ));
        }
        for (number, plugin) in (1..).zip(&list.plugins) {
            values::check(&plugin.conf).map_err(|why| format!("plugin {number}: {why}"))?;
        }
        Ok(Configuration { list })
    }

    /// What it stands for: its plugins.
    pub fn stands_for(&self) -> String {
        format!("CNI {}", self.list.executables().collect::<Vec<_>>().join(" + "))
    }

    /// What the well-known plugins among its plugins need of the kernel. What others need, they say when they are
    /// called.
    pub fn needs(&self) -> Vec<Feature> {
        let of = |plugin: &::cni::Plugin| match plugin.kind.as_str() {
            "bridge" => vec![Feature::Veth, Feature::Bridge],
            "ptp" => vec![Feature::Veth],
            "macvlan" => vec![Feature::Macvlan],
            "ipvlan" => vec![Feature::Ipvlan],
            _ => Vec::new(),
        };
        let mut needs: Vec<Feature> = self.list.plugins.iter().flat_map(of).collect();
        needs.sort_unstable();
        needs.dedup();
        needs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_for_its_plugins_and_needs_what_they_need() {
        let list = r#"{"cniVersion":"1.0.0","name":"a","plugins":[
            {"type":"bridge","ipam":{"type":"host-local"}},{"type":"ptp"},{"type":"tuning","ipam":{}}]}"#;
        let list = Configuration::parse(list).unwrap();
        assert_eq!(list.stands_for(), "CNI bridge + host-local + ptp + tuning");
        assert_eq!(list.needs(), [Feature::Veth, Feature::Bridge]);
    }

    #[track_caller]
    fn check(text: &str, says: &str) {
        let error = Configuration::parse(text).expect_err(text);
        assert!(error.contains(says), "{says:?} is not in {error:?}");
    }

    #[test]
    fn what_the_lab_cannot_use_is_said() {
        check("", "it is not JSON: EOF");
        let name = "a".repeat(41);
        check(&format!(r#"{{"cniVersion":"1.0.0","name":"{name}","type":"x"}}"#), "`name` has 41 bytes");
        check(
            r#"{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"x"},{"type":"y","mtu":"${MTTU}"}]}"#,
            "plugin 2: `${MTTU}`",
        );
    }

    #[test]
    fn a_file_that_is_none_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let large = dir.path().join("large.conflist");
        std::fs::File::create(&large).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        let binary = dir.path().join("binary");
        std::fs::write(&binary, [0xff, 0xfe]).unwrap();
        for (file, says) in [
            (dir.path().join("none"), "No such file"),
            (dir.path().to_owned(), "a file of at most"),
            (large, "a file of at most"),
            (binary, "not UTF-8"),
        ] {
            let error = Configuration::read(&file).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains(file.to_str().unwrap()), "{error}");
        }
    }
}

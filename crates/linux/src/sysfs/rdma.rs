//! RDMA devices: which of them are cards.

use super::NetSysfs;
use crate::{RdmaName, Result};

impl NetSysfs {
    /// The RDMA devices that have a device on a bus behind them, by name. What the kernel makes of a link by software
    /// RoCE names that link (`parent_show` in drivers/infiniband/sw/rxe/rxe_verbs.c), and is none.
    ///
    /// # Errors
    /// There are RDMA devices, and they cannot be listed.
    pub fn rdma_cards(&self) -> Result<Vec<RdmaName>> {
        let names = match self.directory("class/infiniband") {
            // Nothing of RDMA is loaded.
            Err(error) if error.is(libc::ENOENT) => return Ok(Vec::new()),
            names => names?,
        };
        let is_card = |name: &String| {
            let device = format!("class/infiniband/{name}");
            self.target(&format!("{device}/device")).is_some()
                && self.read(&format!("{device}/parent")).is_err()
        };
        Ok(names.into_iter().filter(is_card).filter_map(|name| RdmaName::new(name).ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn software_roce_is_no_card() {
        let root = tempfile::tempdir().unwrap();
        let sysfs = || NetSysfs::at(root.path()).unwrap();
        assert_eq!(sysfs().rdma_cards().unwrap(), []);
        let device = |name: &str, parent: Option<&str>, is_on_bus: bool| {
            let directory = root.path().join("class/infiniband").join(name);
            fs::create_dir_all(&directory).unwrap();
            if is_on_bus {
                symlink("../../../devices/pci0000:00/0000:3b:00.0", directory.join("device")).unwrap();
            }
            if let Some(link) = parent {
                fs::write(directory.join("parent"), link).unwrap();
            }
        };
        device("mlx5_0", None, true);
        device("rxe0", Some("eth0\n"), false);
        // Whatever stands behind its link.
        device("rxe1", Some("eth0\n"), true);
        assert_eq!(sysfs().rdma_cards().unwrap(), [RdmaName::new("mlx5_0").unwrap()]);
    }
}

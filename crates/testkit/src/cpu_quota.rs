//! A control group with a CPU quota.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A control group whose processes may use a share of one CPU in each period of 100 ms. It goes when this is dropped;
/// its processes must have ended by then, or have moved.
#[derive(Debug)]
pub struct CpuQuota {
    root: &'static str,
    path: PathBuf,
}

impl CpuQuota {
    /// Makes a group with so many percent of a CPU; `None`: no hierarchy of control groups has the `cpu` controller.
    pub fn new(percent: u32) -> Option<CpuQuota> {
        let first = ["cpu.cfs_quota_us", "release_agent"];
        let is_first = first.iter().any(|file| Path::new("/sys/fs/cgroup/cpu").join(file).exists());
        let quota_us = (percent * 1000).to_string();
        let (root, files) = if is_first {
            (
                "/sys/fs/cgroup/cpu",
                vec![("cpu.cfs_period_us", "100000".to_owned()), ("cpu.cfs_quota_us", quota_us)],
            )
        } else {
            ("/sys/fs/cgroup", vec![("cpu.max", format!("{quota_us} 100000"))])
        };
        if !is_first {
            let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu");
        }
        let path = Path::new(root).join(format!("hgt-{}", std::process::id()));
        // A killed test has left one, whose process had the same number.
        let _ = fs::remove_dir(&path);
        fs::create_dir(&path).ok()?;
        let group = CpuQuota { root, path };
        files.iter().all(|(file, value)| fs::write(group.path.join(file), value).is_ok()).then_some(group)
    }

    /// Puts a process into the group.
    pub fn take(&self, process: u32) {
        fs::write(self.path.join("cgroup.procs"), process.to_string()).expect("a process can be moved");
    }

    /// Puts a process back to the top of the hierarchy.
    pub fn let_go(&self, process: u32) {
        let top = Path::new(self.root).join("cgroup.procs");
        fs::write(top, process.to_string()).expect("a process can be moved");
    }
}

impl Drop for CpuQuota {
    fn drop(&mut self) {
        // A group can be removed only a moment after its last process has ended.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

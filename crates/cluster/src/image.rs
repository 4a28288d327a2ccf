//! The image of the cluster's containers: busybox, in the form of `docker save`. There is no registry.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use crate::{Programs, run};

/// The image's name. A container of it sleeps if it is not given another command, so that it can hold the namespaces of
/// a pod, too.
pub const IMAGE: &str = "hostgap.test/busybox:1";
/// Programs of busybox that have names in the image.
const APPLETS: &str = "sh sleep httpd nc wget ip ping cat echo nslookup seq";

/// Writes `image.tar`.
pub(crate) fn write(folder: &Path, programs: &Programs) -> Result<()> {
    let work = folder.join("image");
    let script = "
        mkdir -p root/bin root/www root/etc root/proc root/sys root/dev root/tmp
        cp \"$(command -v busybox)\" root/bin/busybox
        for applet in $APPLETS; do ln -s busybox root/bin/$applet; done
        tar --create --file layer.tar --directory root .
        sha256sum layer.tar";
    fs::create_dir_all(&work).with_context(|| format!("could not make {}", work.display()))?;
    let mut layer = Command::new("sh");
    layer.args(["-euc", script]).current_dir(&work).env("APPLETS", APPLETS).env("PATH", programs.path());
    let sum = run(&mut layer)?;
    let sum = sum.split_whitespace().next().context("sha256sum printed nothing")?.to_owned();
    let config = json!({
        "architecture": "amd64", "os": "linux",
        "config": { "Entrypoint": ["/bin/sleep", "2147483647"], "Env": ["PATH=/bin"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{sum}")] },
    });
    let manifest = json!([{ "Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"] }]);
    for (name, text) in [("config.json", config), ("manifest.json", manifest)] {
        fs::write(work.join(name), text.to_string()).with_context(|| format!("could not write {name}"))?;
    }
    let mut archive = Command::new("tar");
    archive.args(["--create", "--file", "../image.tar", "manifest.json", "config.json", "layer.tar"]);
    run(archive.current_dir(&work))?;
    fs::remove_dir_all(&work).context("could not remove what the image was made of")
}

//! The images of the cluster's containers, in the form of `docker save`: programs of this machine. There is no registry.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{Programs, run};

/// The name of an image with busybox. A container of it sleeps if it is not given another command, so that it can hold
/// the namespaces of a pod, too.
pub const IMAGE: &str = "hostgap.test/busybox:1";

/// An image, and how it is made.
#[derive(Debug)]
pub(crate) struct Image {
    /// Its name, as pods give it.
    name: &'static str,
    /// The name of its archive.
    pub(crate) archive: &'static str,
    entrypoint: &'static [&'static str],
    command: &'static [&'static str],
    /// Fills `root`.
    script: &'static str,
}

pub(crate) const BUSYBOX: Image = Image {
    name: IMAGE,
    archive: "busybox.tar",
    entrypoint: &["/bin/sleep", "2147483647"],
    command: &[],
    script: "
        mkdir root/www
        all_of_busybox",
};

/// The image in which Kubernetes' own tests run, by the name that those of the version in `kubernetes/go.mod` have for
/// it. They rely on dash, curl and the netcat of OpenBSD.
pub(crate) const AGNHOST: Image = Image {
    name: "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
    archive: "agnhost.tar",
    entrypoint: &["/agnhost"],
    command: &["pause"],
    script: "
        all_of_busybox
        rm root/bin/sh root/bin/nc
        put /bin/dash sh
        put \"$(command -v curl)\" curl
        put \"$(command -v nc.openbsd)\" nc
        cp \"$(command -v agnhost)\" root/agnhost",
};

/// What the scripts call: `all_of_busybox` puts it into the image with links of all its names, `put` a program with its
/// libraries.
const FUNCTIONS: &str = "
    all_of_busybox() {
        cp \"$(command -v busybox)\" root/bin/busybox
        for applet in $(root/bin/busybox --list); do
            [ -e root/bin/$applet ] || ln -s busybox root/bin/$applet
        done
    }
    put() {
        cp --dereference \"$1\" root/bin/$2
        for library in $(ldd \"$1\" | grep --only-matching '/[^ ]*'); do
            mkdir -p root/${library%/*}
            cp --dereference $library root/$library
        done
    }
    for directory in bin dev etc proc sys tmp; do mkdir -p root/$directory; done";

/// Writes an image's archive into a folder.
pub(crate) fn write(image: &Image, folder: &Path, programs: &Programs) -> Result<()> {
    let work = folder.join("image");
    let pack = "tar --create --file layer.tar --directory root . && sha256sum layer.tar";
    fs::create_dir_all(&work).with_context(|| format!("could not make {}", work.display()))?;
    let mut layer = Command::new("sh");
    let script = format!("{FUNCTIONS}\n{}\n{pack}", image.script);
    layer.args(["-euc", &script]).current_dir(&work).env("PATH", programs.path());
    let sum = run(&mut layer)?;
    let sum = sum.split_whitespace().next().context("sha256sum printed nothing")?.to_owned();
    for (name, text) in [("config.json", image.config(&sum)), ("manifest.json", image.manifest())] {
        fs::write(work.join(name), text.to_string()).with_context(|| format!("could not write {name}"))?;
    }
    let mut archive = Command::new("tar");
    archive.arg("--create").arg("--file").arg(folder.join(image.archive));
    run(archive.args(["manifest.json", "config.json", "layer.tar"]).current_dir(&work))?;
    fs::remove_dir_all(&work).context("could not remove what the image was made of")
}

/// As images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl Image {
    fn config(&self, layer_sha256: &str) -> Value {
        json!({
            "architecture": architecture(), "os": "linux",
            "config": { "Entrypoint": self.entrypoint, "Cmd": self.command, "Env": ["PATH=/bin"] },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer_sha256}")] },
        })
    }

    fn manifest(&self) -> Value {
        json!([{ "Config": "config.json", "RepoTags": [self.name], "Layers": ["layer.tar"] }])
    }
}

//! `hostgap-cni`: the plugin of the Container Network Interface alone. `hostgap` answers runtimes, too, but a runtime
//! starts the program anew for each call, and one of a sixth of the size starts sooner and takes less memory.

use std::io::Write;
use std::process::ExitCode;

use node::process;

fn main() -> ExitCode {
    if process::is_called() {
        return process::answer();
    }
    let about = process::ABOUT.trim_matches('\0');
    // A closed stderr is no error.
    let _ = writeln!(
        std::io::stderr(),
        "hostgap: could not answer: CNI_COMMAND is not set, or there are arguments; this is {about}, which a container \
         runtime starts\n\
         hint: `hostgap cni install` puts it under a runtime; all other commands are those of the program `hostgap`"
    );
    ExitCode::from(2)
}

#!/bin/sh
# Billhook's commands with the options and the account of the services of {{ name }}. It belongs to root, mode 0755.
# As root it becomes {{ account }} before anything is read or run that {{ account }} can write; the terminal
# is not passed on, for what is written into it by TIOCSTI would be typed by root.
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin

run() {
    exec env -i "PATH=$PATH" "LANG=${LANG:-C.UTF-8}" "TERM=${TERM:-dumb}" ${SUDO_USER:+"SUDO_USER=$SUDO_USER"} \
        ${COLUMNS:+"COLUMNS=$COLUMNS"} ${NO_COLOR:+"NO_COLOR=$NO_COLOR"} BILLHOOK_COMMAND={{ wrapper }} "$@"
}

set -- {{ venv }}/bin/python -P -m billhook.deployment.run --options {{ etc }}/{{ name }}.env \
    --folder {{ folder }} -- {{ shell_command }} "$@"
case "$(id -u):$(id -un)" in
*:{{ account }})
    run "$@"
    ;;
0:*)
    cd /
    if [ -t 0 ] && [ -t 1 ] && [ -t 2 ]; then
        run runuser --pty -u {{ account }} -- "$@"
    fi
    run setsid --wait runuser -u {{ account }} -- "$@"
    ;;
*)
    echo "{{ wrapper }}: type it as root or as {{ account }}, or by sudo" >&2
    exit 2
    ;;
esac

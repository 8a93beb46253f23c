# An unknown option is a wrong call, in every command.
for command in bench program model machine validate calibrate; do
    $LOPSIDE $command --frobnicate 2>/dev/null
    echo "$command: $?"
done

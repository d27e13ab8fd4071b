<?php // The service of app.py, for php-fpm with four workers: php-fpm.conf.
usleep(40000);
header('Content-Type: text/plain');
echo 'done ', explode('?', $_SERVER['REQUEST_URI'])[0], "\n";
